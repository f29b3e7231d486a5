// `headroom run` and `pick` inside `headroom run`: they use the lease that is there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>

#include "tests/cli/headroom_process.h"

namespace headroom::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class NestedRun : public ::testing::Test {
 protected:
  NestedRun() { world_.driver(machine({card("24GiB"), card("24GiB")})); }

  // headroom run OUTER... -- headroom INNER...
  [[nodiscard]] Outcome run(Arguments outer, const Arguments& inner) const {
    outer.insert(outer.begin(), "run");
    outer.insert(outer.end(), {"--", HEADROOM_BINARY});
    outer.insert(outer.end(), inner.begin(), inner.end());
    return world_.headroom(outer);
  }

  World world_;
};

const char* const kShow = "echo $CUDA_VISIBLE_DEVICES; test -n \"$HEADROOM_LEASE\"";

// It waited an hour for the memory that had been reserved for it.
TEST_F(NestedRun, UsesTheLeaseItWasStartedIn) {
  const Outcome outcome =
      run({"--need", "20GiB", "--gpus", "1"},
          {"run", "--need", "10GiB", "--timeout", "0s", "--", "sh", "-c", kShow});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "1\n");
  EXPECT_EQ(world_.headroom({"lease", "list"}).out, "There are no leases.\n");
}

// On simulated cards it took a second card.
TEST_F(NestedRun, StaysOnTheCardOfASimulatedBox) {
  const Outcome outcome = run({"--gpus", "sim:4x24GiB", "--need", "20GiB"},
                              {"run", "--need", "10GiB", "--", "sh", "-c", kShow});
  EXPECT_EQ(outcome.out, "0\n") << outcome.err;
}

TEST_F(NestedRun, HasAllCardsOfTheLeaseUnlessACountIsGiven) {
  const Arguments two{"--need", "20GiB", "--count", "2"};
  EXPECT_EQ(run(two, {"run", "--", "sh", "-c", kShow}).out, "0,1\n");
  EXPECT_EQ(run(two, {"run", "--count", "1", "--", "sh", "-c", kShow}).out, "0\n");
}

TEST_F(NestedRun, MoreThanTheLeaseIsRefusedAtOnce) {
  for (const Arguments& inner :
       {Arguments{"run", "--need", "20GiB", "--", "true"}, Arguments{"pick", "--need", "20GiB"},
        Arguments{"run", "--count", "2", "--", "true"},
        Arguments{"run", "--gpus", "1", "--need", "1GiB", "--", "true"}}) {
    const Outcome outcome = run({"--need", "10GiB", "--gpus", "0"}, inner);
    EXPECT_EQ(outcome.exit_code, 64) << inner[0] << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("inside lease"));
  }
}

TEST_F(NestedRun, PicksAmongTheCardsOfTheLease) {
  const Outcome outcome = run({"--need", "20GiB", "--gpus", "1"}, {"pick", "--need", "20GiB"});
  EXPECT_EQ(outcome.out, "1\n") << outcome.err;
}

// Python closes the descriptors of its children, so the lease is found through the ancestors.
TEST_F(NestedRun, UsesTheLeaseThoughTheDescriptorWasClosed) {
  const std::string script =
      "import os, subprocess, sys; os.closerange(3, 1000); "
      "sys.exit(subprocess.run(sys.argv[1:]).returncode)";
  const Outcome outcome = world_.headroom({"run", "--need", "20GiB", "--gpus", "1", "--", "python3",
                                           "-c", script, HEADROOM_BINARY, "run", "--need", "10GiB",
                                           "--timeout", "0s", "--", "sh", "-c", kShow});
  EXPECT_EQ(outcome.out, "1\n") << outcome.err;
}

TEST_F(NestedRun, AVariableThatNamesNoLeaseIsIgnored) {
  world_.set("HEADROOM_LEASE", "0badf00d");
  const Outcome outcome = world_.headroom(
      {"run", "--need", "10GiB", "--", "sh", "-c", "test $HEADROOM_LEASE != 0badf00d"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("making a new reservation"));
}

TEST_F(NestedRun, ALeaseOfAnotherJobIsIgnored) {
  ASSERT_EQ(::mkfifo(world_.path("gate").c_str(), 0600), 0);
  const auto other = world_.start({"run", "--need", "20GiB", "--gpus", "1", "--", "sh", "-c",
                                   "echo $HEADROOM_LEASE; read forever < " + world_.path("gate")});
  ASSERT_TRUE(other->until([](const Running& job) { return job.out().ends_with("\n"); }));
  world_.set("HEADROOM_LEASE", other->out().substr(0, 8));
  const Outcome outcome = world_.headroom({"run", "--need", "20GiB", "--", "sh", "-c", kShow});
  EXPECT_EQ(outcome.out, "0\n") << "not the other's card";
  EXPECT_THAT(outcome.err, HasSubstr("making a new reservation"));
  other->signal(SIGTERM);  // its shell would outlive a killed `run`
  (void)other->wait();
}

TEST_F(NestedRun, OnTheCpuTheLeaseIsNotMentioned) {
  const Outcome outcome = run({"--need", "20GiB"}, {"run", "--gpus", "cpu", "--", "echo", "here"});
  EXPECT_EQ(outcome.out, "here\n");
  EXPECT_THAT(outcome.err, Not(HasSubstr("lease")));
}

}  // namespace
}  // namespace headroom::testing

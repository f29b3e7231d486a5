// `run --detach`, `attach`, `history`: jobs without a terminal, and what became of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>

#include "tests/cli/headroom_process.h"

namespace headroom::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class Detached : public ::testing::Test {
 protected:
  [[nodiscard]] std::string detach(const std::string& script) const {
    const Outcome outcome =
        world_.headroom({"run", "--detach", "--gpus", "cpu", "--", "sh", "-c", script});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.out.size(), 9U) << outcome.out;
    return outcome.out.substr(0, 8);
  }
  // A script that waits until the test opens the gate.
  [[nodiscard]] std::string gate() const {
    EXPECT_EQ(::mkfifo(world_.path("gate").c_str(), 0600), 0);
    return "read go < " + world_.path("gate");
  }
  void open_gate() const { std::ofstream(world_.path("gate")) << "go\n"; }

  const World world_;
};

TEST_F(Detached, IsFollowedToItsEndWithItsExitCode) {
  const std::string id = detach("echo first; " + gate() + "; echo last >&2; exit 7");
  const auto follower = world_.start({"attach", id});
  ASSERT_TRUE(follower->until([](const Running& one) { return one.out() == "first\n"; }));
  open_gate();
  const Outcome outcome = follower->wait();
  EXPECT_EQ(outcome.exit_code, 7);
  EXPECT_EQ(outcome.out, "first\nlast\n");
  const Outcome again = world_.headroom({"attach", id});
  EXPECT_EQ(again.exit_code, 7) << "also after its end";
  EXPECT_EQ(again.out, outcome.out);
}

TEST_F(Detached, CtrlCLeavesItRunning) {
  const std::string id = detach("echo first; " + gate() + "; echo last");
  const auto follower = world_.start({"attach", id});
  ASSERT_TRUE(follower->until([](const Running& one) { return one.out() == "first\n"; }));
  follower->signal(SIGINT);
  const Outcome left = follower->wait();
  EXPECT_EQ(left.exit_code, 130);
  EXPECT_THAT(left.err, HasSubstr("runs on"));
  open_gate();
  EXPECT_EQ(world_.headroom({"attach", id}).out, "first\nlast\n");
}

TEST_F(Detached, AreListed) {
  EXPECT_EQ(world_.headroom({"attach"}).out, "There are no detached jobs.\n");
  const std::string id = detach("exit 3");
  EXPECT_EQ(world_.headroom({"attach", id}).exit_code, 3);
  const Json jobs = world_.headroom({"attach", "--json"}).json()["jobs"];
  ASSERT_THAT(jobs, SizeIs(1));
  EXPECT_EQ(jobs[0]["id"], id);
  EXPECT_EQ(jobs[0]["exit_code"], 3);
  EXPECT_EQ(jobs[0]["running"], false);
  EXPECT_THAT(world_.headroom({"attach"}).out, HasSubstr("ended"));
  const Outcome wrong = world_.headroom({"attach", "../../x"});
  EXPECT_EQ(wrong.exit_code, 64);
}

// A job that waited for a card was listed as "runs", and a command of several lines broke the
// table.
TEST_F(Detached, AJobThatWaitsIsListedAsWaiting) {
  const auto holder = world_.start({"run", "--need", "20GiB", "--gpus", "sim:1x24GiB@lab", "--",
                                    "sh", "-c", "echo here; exec sleep 1000"});
  ASSERT_TRUE(holder->until([](const Running& one) { return one.out() == "here\n"; }));
  const Outcome started = world_.headroom({"run", "--detach", "--need", "20GiB", "--gpus",
                                           "sim:1x24GiB@lab", "--", "sh", "-c", "true\ntrue"});
  ASSERT_EQ(started.exit_code, 0) << started.err;
  const auto poll = world_.start_program({"sleep", "1000"});
  EXPECT_TRUE(poll->until([&](const Running&) {
    return world_.headroom({"attach", "--json"}).json()["jobs"][0]["state"] == "waits";
  }));
  const std::string list = world_.headroom({"attach"}).out;
  EXPECT_THAT(lines_of(list), SizeIs(2)) << list;
  EXPECT_THAT(list, HasSubstr("waits"));
  const Json job = world_.headroom({"attach", "--json"}).json()["jobs"][0];
  ::kill(job["pid"].get<pid_t>(), SIGTERM);
  EXPECT_NE(world_.headroom({"attach", job["id"].get<std::string>()}).exit_code, 0);
}

TEST_F(Detached, AKilledJobIsNotTakenForRunning) {
  const std::string id = detach("echo first; " + gate());
  const Json job = world_.headroom({"attach", "--json"}).json()["jobs"][0];
  const auto follower = world_.start({"attach", id});
  ASSERT_TRUE(follower->until([](const Running& one) { return one.out() == "first\n"; }));
  ::kill(job["pid"].get<pid_t>(), SIGKILL);
  const Outcome outcome = follower->wait();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("was killed"));
  open_gate();  // the command lives on, and is to end
}

TEST_F(Detached, AWrongOptionIsReportedBeforeTheTerminalIsLeft) {
  const Outcome outcome = world_.headroom({"run", "--detach", "--need", "10", "--", "true"});
  EXPECT_EQ(outcome.exit_code, 64);
  EXPECT_EQ(outcome.out, "");
}

// On a full disk it asked for "the ID of a detached job". A limit of 0 bytes a file is as full.
TEST_F(Detached, AFailedWriteIsReportedAndLeavesNoFile) {
  const Outcome outcome = world_.run({"bash", "-c",
                                      "set -o pipefail; (trap '' XFSZ; ulimit -f 0; exec '" +
                                          std::string(HEADROOM_BINARY) +
                                          "' run --detach --gpus cpu -- true) 2>&1 | cat"});
  EXPECT_EQ(outcome.exit_code, 73) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("cannot write"));
  EXPECT_TRUE(std::filesystem::is_empty(world_.state() / "jobs"));
}

TEST(History, ShowsTheTriesOfRun) {
  const World world;
  EXPECT_EQ(world.headroom({"history"}).out, "There are no tries yet.\n");
  (void)world.headroom({"run", "--gpus", "cpu", "--", "sh", "-c", "exit 3"});
  (void)world.headroom({"run", "--gpus", "cpu", "--", "true"});
  const Json tries = world.headroom({"history", "--json"}).json()["tries"];
  ASSERT_THAT(tries, SizeIs(2));
  EXPECT_EQ(tries[0]["exit_code"], 3);
  EXPECT_EQ(tries[1]["command"], Json::array({"true"}));
  const std::string text = world.headroom({"history", "--count", "1"}).out;
  EXPECT_THAT(text, HasSubstr("true"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("exit 3")));
  EXPECT_EQ(world.headroom({"history", "--file", "nothing.ndjson"}).exit_code, 65);
}

// Another file was "There are no tries yet."
TEST(History, RefusesAFileThatIsNotAHistory) {
  const World world;
  const auto path = world.folder().write("notes.txt", "batch 64 ran out of memory\n");
  const Outcome outcome = world.headroom({"history", "--file", path});
  EXPECT_EQ(outcome.exit_code, 65);
  EXPECT_THAT(outcome.err, HasSubstr("batch 64 ran"));
  EXPECT_EQ(world.headroom({"history", "--file", "/dev/null"}).exit_code, 0);
  EXPECT_THAT(world.headroom({"history", "--count", "-2"}).err,
              HasSubstr("expected a whole number from 0"));
}

// It was UTC, and attach's list beside it local time.
TEST(History, IsInLocalTimeAsTheJobsOfAttachAre) {
  World world;
  world.set("TZ", "XXX-9");  // nine hours ahead of UTC
  (void)world.folder().write("runs", R"({"try": 1, "started": "2026-11-22T20:40:48.036Z"})"
                                     "\n");
  EXPECT_THAT(world.headroom({"history", "--file", world.path("runs")}).out,
              HasSubstr("2026-11-23 05:40 "));
}

TEST(History, ShowsBatchAndAccumulation) {
  const World world;
  (void)world.headroom({"run", "--gpus", "cpu", "--map", "--bs=batch", "--map",
                        "--acc=accumulation", "--", "true", "--bs", "16", "--acc", "12"});
  EXPECT_THAT(world.headroom({"history"}).out, HasSubstr("16 x 12"));
}

}  // namespace
}  // namespace headroom::testing

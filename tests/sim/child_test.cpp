#include "headroom/sim/child.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <csignal>

#include "headroom/base/error.h"
#include "headroom/sim/simulate.h"
#include "tests/sim/fixtures/fresh_process.h"
#include "tests/sim/fixtures/step.h"

namespace headroom::sim {
namespace {

using ::testing::HasSubstr;

// A step that a process with autograd's threads cannot take in a child.
[[maybe_unused]] std::string peak_of_a_step() {
  const Simulation box = simulate("1x1GiB");
  fixtures::Step step(box.device(0));
  step.run();
  return std::to_string(box.card(0).statistics().allocated_bytes.all.peak);
}

TEST(InChild, AnswersWithWhatTheWorkReturned) {
  const std::string long_text(1 << 20, 'x');
  EXPECT_EQ(in_child([&] { return long_text; }), long_text);
  EXPECT_EQ(in_child([] { return std::string(); }), "");
}

TEST(InChild, LeavesThisProcessAsItIs) {
  int here = 1;
  EXPECT_EQ(in_child([&] { return std::to_string(++here); }), "2");
  EXPECT_EQ(here, 1);
}

TEST(InChild, SimulatesBesideTheBoxOfItsParent) {
  const Simulation box = simulate("1x1GiB");
  const auto x = torch::ones({3}, box.device(0));
  EXPECT_EQ(in_child([] { return std::to_string(simulate("3x1GiB").cards()); }), "3");
  EXPECT_EQ(box.cards(), 1);
  EXPECT_EQ((x + 1).device(), box.device(0));
}

TEST(InChild, ThrowsWhatTheWorkThrew) {
  EXPECT_THROW((void)in_child([]() -> std::string { throw UsageError("u"); }), UsageError);
  EXPECT_THROW((void)in_child([]() -> std::string { throw InputError("i"); }), InputError);
  EXPECT_THROW((void)in_child([]() -> std::string { throw UnavailableError("a"); }),
               UnavailableError);
  EXPECT_THROW((void)in_child([]() -> std::string { throw WriteError("w"); }), WriteError);
  EXPECT_THROW((void)in_child([]() -> std::string { throw BusyError("b"); }), BusyError);
  EXPECT_THROW((void)in_child([]() -> std::string { throw InternalError("n"); }), InternalError);
  EXPECT_THROW((void)in_child([]() -> std::string { throw std::logic_error("e"); }),
               std::runtime_error);
  EXPECT_THROW((void)in_child([]() -> std::string { throw 3; }), std::runtime_error);
  try {
    (void)in_child([]() -> std::string { throw OutOfMemoryError({"card", "full"}, Bytes{5}); });
    FAIL();
  } catch (const OutOfMemoryError& error) {
    EXPECT_STREQ(error.what(), "[card] full");
    EXPECT_EQ(error.asked, Bytes{5});
  }
  EXPECT_THROW((void)in_child([] {
                 const Simulation box = simulate("1x1MiB");
                 (void)torch::empty({1 << 20}, box.device(0));
                 return std::string();
               }),
               c10::OutOfMemoryError);
}

TEST(InChild, ReportsTheEndOfAChildThatDidNotAnswer) {
  try {
    (void)in_child([]() -> std::string {
      ::raise(SIGKILL);
      return "";
    });
    FAIL();
  } catch (const UnavailableError& error) {
    EXPECT_THAT(error.what(), HasSubstr("signal 9 (Killed)"));
  }
  // Once more memory was recommended here, too.
  EXPECT_THAT([] { (void)in_child([]() -> std::string { ::_exit(3); }); },
              ::testing::ThrowsMessage<UnavailableError>(::testing::AllOf(
                  HasSubstr("exit code 3"), HasSubstr("in a program of its own"))));
}

#ifndef __SANITIZE_THREAD__  // which cannot follow a child that starts threads

TEST(InChild, TakesTheStepItsParentWouldTake) {
  const auto both = [] {
    const std::string in_a_child = in_child(peak_of_a_step);
    return in_a_child + (in_a_child == peak_of_a_step() ? " same" : " other");
  };
  EXPECT_IN_A_NEW_PROCESS(both, "^[1-9][0-9]+ same$");
}

TEST(InChild, MayFollowComputingOnTheCpu) {
  const auto after_training = [] {
    auto x = torch::ones({512, 512}, torch::requires_grad());
    x.mm(x).sum().backward();  // large enough for OpenMP's threads
    return in_child([] {
      const Simulation box = simulate("1x1GiB", {.mode = Mode::compute});
      fixtures::Step(box.device(0)).run();
      return std::to_string(torch::ones({512, 512}).mm(torch::ones({512, 512}))[0][0].item<int>());
    });
  };
  EXPECT_IN_A_NEW_PROCESS(after_training, "^512$");
}

TEST(InChild, RefusesABackwardPassWhereLibTorchDoes) {
  const auto after_device_threads = [] {
    (void)peak_of_a_step();
    try {
      return in_child(peak_of_a_step);
    } catch (const UnavailableError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_IN_A_NEW_PROCESS(after_device_threads,
                          "expected a process without autograd's device threads");
}

#endif

}  // namespace
}  // namespace headroom::sim

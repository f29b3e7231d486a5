// Signals as a request to stop: none is lost, whenever it is checked. Each test sends them to this
// process.

#include "headroom/base/interrupt.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>

#include "headroom/base/error.h"

namespace headroom {
namespace {

bool is_pending(int signal) {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, signal) == 1;
}

void take(int signal) {
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  int got = 0;
  sigwait(&one, &got);
}

TEST(Interrupt, ASignalRequestsTheStop) {
  const SignalsHeld held;
  const Interrupt interrupt;
  EXPECT_FALSE(interrupt.happened());
  ::kill(::getpid(), SIGTERM);
  EXPECT_FALSE(sleep_for(Seconds(60), interrupt.token()));
  EXPECT_TRUE(interrupt.happened());
  EXPECT_EQ(interrupt.exit_code(), 128 + SIGTERM);
}

// `timeout` sends its signal to the program and then to the whole group.
TEST(Interrupt, ASignalSentTwiceAtOnceIsOne) {
  const SignalsHeld held;
  const Interrupt interrupt;
  ::kill(::getpid(), SIGTERM);
  EXPECT_FALSE(sleep_for(Seconds(60), interrupt.token()));
  ::kill(::getpid(), SIGTERM);
  while (is_pending(SIGTERM)) sleep_for(Seconds(0.001), {});  // until it is read
  EXPECT_TRUE(interrupt.happened());
  EXPECT_EQ(interrupt.exit_code(), 128 + SIGTERM);
}

TEST(Interrupt, AReportedSignalIsNotRaisedAgain) {
  const SignalsHeld held;
  {
    const Interrupt interrupt;
    ::kill(::getpid(), SIGTERM);
    (void)sleep_for(Seconds(60), interrupt.token());
    EXPECT_TRUE(interrupt.happened());
  }
  EXPECT_FALSE(is_pending(SIGTERM));
}

TEST(Interrupt, AnUnreportedSignalIsRaisedAgain) {
  const SignalsHeld held;
  {
    const Interrupt interrupt;
    EXPECT_FALSE(interrupt.happened());
    ::kill(::getpid(), SIGTERM);  // after the last look
    (void)sleep_for(Seconds(60), interrupt.token());
  }
  ASSERT_TRUE(is_pending(SIGTERM));
  take(SIGTERM);
}

TEST(Interrupt, WithoutADescriptorItIsAnError) {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  std::string said;
  try {
    const Interrupt interrupt;
  } catch (const BusyError& error) {
    said = error.what();
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_NE(said.find("Too many open files"), std::string::npos) << said;
}

}  // namespace
}  // namespace headroom

// A piece of work that is killed at random moments.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>

namespace headroom {

// Runs `work` in ten child processes, each of which is killed after at most `longest` microseconds,
// and at last in this one. A child that ends by itself has to succeed.
template <typename Work>
void run_with_kills(std::uint32_t seed, std::uint32_t longest, const Work& work) {
  std::uint32_t random = seed;
  for (int kill = 0; kill < 10; ++kill) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        work();
      } catch (const std::exception& error) {
        static_cast<void>(std::fprintf(stderr, "the child: %s\n", error.what()));
        ::_exit(1);
      }
      ::_exit(0);
    }
    random = random * 1664525U + 1013904223U;
    ::usleep(static_cast<useconds_t>(std::uint64_t{random} * longest >> 32));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) != 0) << kill;
  }
  work();
}

}  // namespace headroom

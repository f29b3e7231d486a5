// Runs checks one after another, each in a process of its own: `gpu_check --child NAME` is started
// for it and prints its outcome as JSON. So a check that breaks CUDA's context, or crashes, harms
// no other, and each starts with an empty allocator. All together have a limit of time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "headroom/base/time.h"
#include "tests/gpu_check/check.h"

namespace headroom::gpu_check {

struct Done {
  const Check* check = nullptr;
  Outcome outcome;
  Seconds took{0};
};

// `begins` is called before each check, `ends` after it.
[[nodiscard]] std::vector<Done> run_checks(const std::vector<const Check*>& checks,
                                           const Place& place, Seconds limit,
                                           const std::function<void(const Check&)>& begins,
                                           const std::function<void(const Done&)>& ends);

// The part of the child: runs the check and prints its outcome. Does not return: the end of a
// process whose CUDA is broken would report errors of its own.
[[noreturn]] void run_as_child(const Check& check, Place& place);

}  // namespace headroom::gpu_check

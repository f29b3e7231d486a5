#include "headroom/dryrun/module_calls.h"

#include <utility>
#include <vector>

#include "headroom/libtorch/autograd_engine.h"

namespace headroom::dryrun {
namespace {

thread_local std::vector<ModuleCall> calls;

}  // namespace

void enter_module(std::string name) {
  calls.push_back({std::move(name), libtorch::in_backward_pass()});
}

void leave_module() {
  if (!calls.empty()) calls.pop_back();
}

const ModuleCall* innermost_module_call() {
  return calls.empty() ? nullptr : &calls.back();
}

}  // namespace headroom::dryrun

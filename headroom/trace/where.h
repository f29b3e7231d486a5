// Where in the program the current thread is. Scopes set it; recorders, dry runs and allocators
// read it, so that the code that sees an allocation need not know it.
//
//   { const OperationScope scope("aten::mm"); ... here.operation ... }
//
// Each thread has its own, because autograd runs backward on threads that the training thread's
// scopes do not describe. A hook that knows the module opens a scope on that thread. The phase is
// not part of it: a recorder's phase applies to all threads (recorder.h).
#pragma once

#include <string_view>
#include <utility>

#include "headroom/trace/event.h"

namespace headroom::trace {

class Recorder;

struct Where {
  std::string_view operation = {};     // "aten::mm"; "" if the program itself runs
  std::string_view overload = {};      // "Tensor" of "aten::add.Tensor", if `operation` lacks it
  const Recorder* recorder = nullptr;  // in whose names `module` is a number
  Name module = 0;
};
inline thread_local Where here;  // constant-initialised: access needs no guard

// Sets the operator until the scope ends. The texts must live that long. Scopes nest.
class OperationScope {
 public:
  explicit OperationScope(std::string_view operation, std::string_view overload = {})
      : operation_(std::exchange(here.operation, operation)),
        overload_(std::exchange(here.overload, overload)) {}
  ~OperationScope() { here.operation = operation_, here.overload = overload_; }
  OperationScope(const OperationScope&) = delete;
  OperationScope& operator=(const OperationScope&) = delete;

 private:
  const std::string_view operation_, overload_;
};

// The same for the module, in the events of this recorder.
class ModuleScope {
 public:
  ModuleScope(const Recorder& recorder, Name module)
      : recorder_(std::exchange(here.recorder, &recorder)),
        module_(std::exchange(here.module, module)) {}
  ~ModuleScope() { here.recorder = recorder_, here.module = module_; }
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

 private:
  const Recorder* const recorder_;
  const Name module_;
};

}  // namespace headroom::trace

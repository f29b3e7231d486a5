// Sees the operators of LibTorch that a piece of code calls, on its own thread and on autograd's
// threads while they work for it, before they run. An observer may look at the arguments, replace
// them, and throw: the exception leaves the operator.
//
//   struct Count final : CallObserver {
//     std::atomic<int> calls = 0;
//     void on_call(OperatorCall& call) override { ++calls; call.run(); }
//   } count;
//   const CallScope scope(count, CallScope::Of::all);
//
// With Of::all, only the calls of the code itself are seen, not those that an operator makes
// inside. With Of::writing, operators that write into an argument are seen, also where LibTorch
// composes another one of them, but not inside of a device's kernel. Watching costs about 1 us for
// each call that is seen, and nothing for others.
//
// Threads: a scope belongs to its thread; on_call() comes from any thread of a backward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace c10 {
class OperatorHandle;
struct IValue;
}  // namespace c10

namespace headroom::libtorch {

class CallObserver;

// One call, from on_call() until it returns.
class OperatorCall {
 public:
  // Runs the operator, after the observers of the scopes inside. Call it once.
  void run();

  // "aten::add_"
  [[nodiscard]] const char* name() const;
  // The schema's arguments, by place. Not after run().
  [[nodiscard]] std::size_t count() const;
  [[nodiscard]] c10::IValue& argument(std::size_t place);
  // The tensors that the operator writes into: those that its schema marks, and the running
  // statistics of norms.
  void for_each_written(const std::function<void(const at::Tensor&)>& visit);
  // After run().
  void for_each_result(const std::function<void(const at::Tensor&)>& visit);
  // The arguments have become tensors of another device.
  void set_other_device() { other_device_ = true; }

 private:
  friend struct OperatorCalls;
  OperatorCall(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
               std::vector<c10::IValue>& stack, const std::vector<CallObserver*>& observers)
      : op_(op), keys_(keys), stack_(stack), observers_(observers) {}

  const c10::OperatorHandle& op_;
  const c10::DispatchKeySet keys_;  // of the kernel behind this one
  std::vector<c10::IValue>& stack_;
  const std::vector<CallObserver*>& observers_;
  std::size_t next_ = 0;  // observer
  bool other_device_ = false;
};

class CallObserver {
 public:
  virtual ~CallObserver() = default;
  virtual void on_call(OperatorCall& call) = 0;
};

class CallScope {
 public:
  enum class Of { writing, all };
  // The observer must outlive the scope. Inside another scope the outer observer is asked first,
  // and each gets the calls that any of them wants.
  CallScope(CallObserver& observer, Of which);
  ~CallScope();
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  struct Guards;
  std::unique_ptr<Guards> guards_;
};

// Calls inside are seen by no observer: for code between two operators of the watched code, such as
// a hook, whose tensors are its own.
class UnseenScope {
 public:
  UnseenScope();
  ~UnseenScope();
  UnseenScope(const UnseenScope&) = delete;
  UnseenScope& operator=(const UnseenScope&) = delete;

 private:
  struct Guard;
  std::unique_ptr<Guard> guard_;
};

}  // namespace headroom::libtorch

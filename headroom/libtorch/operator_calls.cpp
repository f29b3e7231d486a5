#include "headroom/libtorch/operator_calls.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <mutex>
#include <string_view>

#include "headroom/libtorch/tensors_in.h"

namespace headroom::libtorch {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::OperatorHandle;
using torch::jit::Stack;

// Both are above autograd, and no other code uses them: they are for autocast on devices that
// LibTorch itself does not have. Autocast's keys are excluded unless it is on.
constexpr DispatchKey kAll = DispatchKey::AutocastHPU;
constexpr DispatchKey kWriting = DispatchKey::AutocastIPU;
constexpr DispatchKeySet kBoth({kAll, kWriting});

// LibTorch hands it on to autograd's threads, together with the keys.
const c10::DebugInfoKind kKind = c10::DebugInfoKind::TEST_INFO_2;
struct Observers final : c10::DebugInfoBase {
  std::vector<CallObserver*> all;
  std::atomic<bool> have_ended = false;
};

Observers* observers_now() {
  return static_cast<Observers*>(c10::ThreadLocalDebugInfo::get(kKind));
}

// They update running statistics, arguments 3 and 4, if argument 5 is true. Their schemas do not
// say so.
constexpr std::array<std::string_view, 6> kNorms = {
    "aten::batch_norm",       "aten::_batch_norm_impl_index", "aten::native_batch_norm",
    "aten::cudnn_batch_norm", "aten::miopen_batch_norm",      "aten::instance_norm"};
constexpr std::size_t kMean = 3, kVariance = 4, kTraining = 5;

bool is_norm(std::string_view name) {
  return std::find(kNorms.begin(), kNorms.end(), name) != kNorms.end();
}

// Autograd's kernels exclude its keys around the kernel of a device. The tensors that it writes are
// its own; on a simulated card they may have no values yet.
bool is_inside_a_kernel() {
  return c10::impl::tls_is_dispatch_keyset_excluded(c10::autograd_dispatch_keyset) &&
         !c10::InferenceMode::is_enabled();
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

}  // namespace

struct OperatorCalls {
  static void see(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    const Observers* const observers = observers_now();
    const c10::impl::ExcludeDispatchKeyGuard once(kBoth);
    static const std::vector<CallObserver*> none;
    const bool have_ended = observers == nullptr || observers->have_ended;
    OperatorCall(op, keys, *stack, have_ended ? none : observers->all).run();
  }

  template <DispatchKey key>
  static void kernel(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    const DispatchKeySet rest = (keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, key)) - kBoth;
    // Under kAll no call inside of another is seen; torch::zeros() and the like exclude autograd.
    if (key == kWriting && is_inside_a_kernel()) return op.redispatchBoxed(rest, stack);
    see(op, rest, stack);
  }

  static torch::Library& library(DispatchKey key, const char* names) {
    static auto& kept = *new std::deque<torch::Library>;
    return kept.emplace_back(torch::Library::IMPL, names, key, __FILE__, __LINE__);
  }

  static void register_kernels() {
    library(kAll, "_").fallback(torch::CppFunction::makeFromBoxedFunction<&kernel<kAll>>());
    library(kWriting, "_").fallback(torch::CppFunction::makeFallthrough());
    static auto& kept = *new std::deque<c10::RegistrationHandleRAII>;
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      const auto op = dispatcher.findSchema(name);
      if (!op || !(op->schema().is_mutable() || is_norm(name.name))) continue;
      kept.push_back(dispatcher.registerImpl(
          name, kWriting, c10::KernelFunction::makeFromBoxedFunction<&kernel<kWriting>>(), {},
          nullptr, "headroom: operators that write"));
    }
  }
};

// ---- A call ----

void OperatorCall::run() {
  if (next_ < observers_.size()) return observers_[next_++]->on_call(*this);
  if (other_device_)
    op_.callBoxed(&stack_);
  else
    op_.redispatchBoxed(keys_, &stack_);
}

const char* OperatorCall::name() const {
  return op_.schema().name().c_str();
}

std::size_t OperatorCall::count() const {
  return op_.schema().arguments().size();
}

c10::IValue& OperatorCall::argument(std::size_t place) {
  return torch::jit::peek(stack_, place, count());
}

void OperatorCall::for_each_written(const std::function<void(const at::Tensor&)>& visit) {
  const auto& arguments = op_.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (is_written(arguments[i])) for_each_tensor(argument(i), visit);
  if (is_norm(name()) && argument(kTraining).toBool())
    for (const std::size_t place : {kMean, kVariance}) for_each_tensor(argument(place), visit);
}

void OperatorCall::for_each_result(const std::function<void(const at::Tensor&)>& visit) {
  const std::size_t results = op_.schema().returns().size();
  for (std::size_t i = 0; i < results; ++i)
    for_each_tensor(torch::jit::peek(stack_, i, results), visit);
}

// ---- A scope ----

struct CallScope::Guards {
  Guards(const std::shared_ptr<Observers>& mine, DispatchKeySet included, DispatchKeySet excluded)
      : observers(mine), info(kKind, mine), keys(included, excluded) {}
  const std::shared_ptr<Observers> observers;
  const c10::DebugInfoGuard info;
  const c10::impl::ForceDispatchKeyGuard keys;
};

CallScope::CallScope(CallObserver& observer, Of which) {
  static std::once_flag once;
  std::call_once(once, &OperatorCalls::register_kernels);
  const auto observers = std::make_shared<Observers>();
  if (const Observers* const outer = observers_now()) observers->all = outer->all;
  observers->all.push_back(&observer);
  auto [included, excluded] = c10::impl::tls_local_dispatch_key_set();
  // Under kAll each call is seen already.
  if (which == Of::all) {
    included = included.remove(kWriting).add(kAll);
    excluded = excluded.remove(kAll);
  } else if (!included.has(kAll)) {
    included = included.add(kWriting);
    excluded = excluded.remove(kWriting);
  }
  guards_ = std::make_unique<Guards>(observers, included, excluded);
}

CallScope::~CallScope() {
  guards_->observers->have_ended = true;
}

struct UnseenScope::Guard {
  const c10::impl::ExcludeDispatchKeyGuard keys{kBoth};
};
UnseenScope::UnseenScope() : guard_(std::make_unique<Guard>()) {}
UnseenScope::~UnseenScope() = default;

}  // namespace headroom::libtorch

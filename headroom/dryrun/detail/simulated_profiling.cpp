// Profiles of simulated cards: the operators are those that LibTorch announces (RecordFunction), as
// PyTorch's own profilers take them; the bytes are those of the cards' observers, each under the
// operator and module that a dry run names for it.
//
// The recorder is LibTorch's current profiler meanwhile, so that LibTorch starts no second one,
// hands it to autograd's threads, and reports the CPU's memory to it.
#include <ATen/record_function.h>
#include <torch/csrc/profiler/orchestration/observer.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>

#include "headroom/base/time.h"
#include "headroom/dryrun/detail/attribution.h"
#include "headroom/dryrun/detail/operator_work.h"
#include "headroom/gpu/catalogue.h"
#include "headroom/memory/profiler.h"
#include "headroom/sim/simulate.h"
#include "headroom/trace/where.h"

namespace headroom::dryrun::detail {
namespace {

namespace profilers = torch::profiler::impl;
using memory::Call;
using memory::CallKind;

// "aten::mul" for "aten::mul.Tensor": a profile has PyTorch's names, without the overload.
std::string_view without_overload(std::string_view name) {
  return name.substr(0, name.find('.'));
}

constexpr const char* kOutsideCalls = "[memory]";  // as in PyTorch's table

// The catalogue's card of this name, or the nearest in memory for a card that is only a size. Null
// for a card without limit.
const gpu::CatalogueCard* rates_of(const sim::Card& card) {
  if (const auto* const named = gpu::find_card(card.options().name)) return named;
  if (card.capacity() == allocator::kUnlimited) return nullptr;
  const auto& all = gpu::catalogue();
  const auto distance = [&](const gpu::CatalogueCard& one) {
    return std::abs((one.total - card.capacity()).count);
  };
  return &*std::min_element(all.begin(), all.end(), [&](const auto& a, const auto& b) {
    return distance(a) < distance(b);
  });
}

// Of this thread; null if there is none. ProfilerStateBase has the same under names that differ
// between versions.
c10::DebugInfoBase* current_profiler() {
  return c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE);
}

class CallRecorder;

// A call that runs now, on its thread.
struct OpenCall {
  std::shared_ptr<CallRecorder> recorder;
  std::shared_ptr<OpenCall> outer;
  std::size_t number = 0;
  std::string_view name;
  CallWork work;
  // The card runs it: what its kernel calls, for shapes or values, is the simulation's own work.
  bool runs_on_card = false;
  bool called_work = false;  // an operator that it called took device time
  bool has_ended = false;    // on another thread
};
struct CallContext : at::ObserverContext {
  explicit CallContext(std::shared_ptr<OpenCall> of) : open(std::move(of)) {}
  std::shared_ptr<OpenCall> open;
};
thread_local std::shared_ptr<OpenCall> innermost;

class CallRecorder final : public profilers::ProfilerStateBase,
                           public std::enable_shared_from_this<CallRecorder> {
 public:
  CallRecorder(const memory::NamedTensors& tensors, const gpu::CatalogueCard* rates)
      : ProfilerStateBase(profilers::ProfilerConfig(profilers::ProfilerState::PRIVATEUSE1,
                                                    /*report_input_shapes=*/true,
                                                    /*profile_memory=*/true)),
        rates_(rates),
        attribution_({.step = {}, .parameters = tensors}, profile_.names) {
    profile_.knows_modules = !tensors.empty();
    attribution_.begin_step();
  }

  void know(const memory::NamedTensors& tensors) {
    const std::lock_guard lock(mutex_);
    attribution_.know({.step = {}, .parameters = tensors});
    profile_.knows_modules = profile_.knows_modules || !tensors.empty();
  }
  void begin_step() { attribution_.begin_step(); }
  // A range that is still open ends here.
  [[nodiscard]] memory::Profile profile() {
    const std::lock_guard lock(mutex_);
    for (Call& call : profile_.calls)
      if (call.end_ns == 0) call.end_ns = wall_time_ns();
    profile_.simulated_time = profile_.has_device;
    if (profile_.has_device) profile_.rates_of = rates_ != nullptr ? rates_->brief : "A100 80GB";
    return profile_;
  }

  // ---- Calls ----

  profilers::ActiveProfilerType profilerType() override {
    return profilers::ActiveProfilerType::PRIVATEUSE1;
  }

  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call) {
    auto* const recorder = dynamic_cast<CallRecorder*>(current_profiler());
    const std::string_view name = call.name();
    if (recorder == nullptr || memory::is_left_out(name) || name.starts_with(memory::kModuleRange))
      return nullptr;
    const std::shared_ptr<OpenCall> outer = recorder->innermost_here();
    if (outer != nullptr && outer->runs_on_card) return nullptr;
    innermost = recorder->opened(call, outer);
    return std::make_unique<CallContext>(innermost);
  }

  static void end(const at::RecordFunction& call, at::ObserverContext* context) {
    if (context == nullptr) return;
    const std::shared_ptr<OpenCall> open = static_cast<CallContext*>(context)->open;
    open->has_ended = true;
    open->recorder->close(call, *open);
    if (innermost == open) innermost = open->outer;
  }

  // ---- Memory ----

  void reportMemoryUsage(void* /*pointer*/, std::int64_t bytes, std::size_t /*allocated*/,
                         std::size_t /*reserved*/, c10::Device device) override {
    if (!device.is_cpu()) return;  // a card's own observer tells of it
    const std::shared_ptr<OpenCall> open = innermost_here();
    const std::lock_guard lock(mutex_);
    sample("cpu", bytes);
    if (bytes > 0) call_of(open).cpu += Bytes(bytes);
  }

  void on_operator(const sim::OperatorCall& call) {
    (void)attribution_.on_operator(call);
    const std::shared_ptr<OpenCall> open = innermost_here();
    const std::lock_guard lock(mutex_);
    profile_.has_device = true;
    if (open != nullptr && open->name == without_overload(call.name)) {
      open->runs_on_card = true;
      take_module(open->number, attribution_.now().module);
    }
  }

  void on_event(const allocator::AllocatorEvent& event, const std::string& device) {
    using Kind = allocator::AllocatorEvent::Kind;
    if (event.kind != Kind::alloc && event.kind != Kind::free_requested) return;
    const std::shared_ptr<OpenCall> open = innermost_here();
    const trace::Name module = attribution_.now().module;
    const std::lock_guard lock(mutex_);
    profile_.has_device = true;
    const bool takes = event.kind == Kind::alloc;
    sample(device, takes ? event.size.count : -event.size.count);
    if (!takes) {
      call_of(open).kept -= event.size;
      return;
    }
    Call& call = call_that_allocates(open, module);
    call.device += event.size;
    call.kept += event.size;
  }

 private:
  // Of this recorder, on this thread.
  [[nodiscard]] std::shared_ptr<OpenCall> innermost_here() const {
    while (innermost != nullptr && innermost->has_ended) {
      const std::shared_ptr<OpenCall> outer = innermost->outer;
      innermost = outer;
    }
    return innermost != nullptr && innermost->recorder.get() == this ? innermost : nullptr;
  }

  std::shared_ptr<OpenCall> opened(const at::RecordFunction& call,
                                   const std::shared_ptr<OpenCall>& outer) {
    auto open = std::make_shared<OpenCall>();
    open->recorder = shared_from_this();
    open->outer = outer;
    open->name = call.name();
    const bool is_range = call.scope() == at::RecordScope::USER_SCOPE;
    if (const OperatorFacts* const facts = operators_.facts_of(call))
      open->work = CallWork(call, *facts);
    const std::string shapes = is_range ? std::string() : shapes_of(call.inputs());
    const std::lock_guard lock(mutex_);
    open->number = add(std::string(open->name), outer);
    profile_.calls.back().kind = is_range ? CallKind::range : CallKind::operation;
    profile_.calls.back().shapes = profile_.names.number(shapes);
    profile_.calls.back().start_ns = wall_time_ns();
    return open;
  }

  void close(const at::RecordFunction& call, OpenCall& open) {
    const std::int64_t now_ns = wall_time_ns();
    const trace::Name module = attribution_.now().module;
    const forecast::OperatorWork work = std::move(open.work).finished(call);
    const bool works = work.bytes > 0 && !open.called_work;
    if (open.outer != nullptr && (works || open.called_work)) open.outer->called_work = true;
    const std::lock_guard lock(mutex_);
    Call& record = profile_.calls[open.number];
    record.end_ns = now_ns;
    if (works) record.device_s = forecast::operator_seconds(work, rates_);
    take_module(open.number, module);
  }

  static std::string shapes_of(c10::ArrayRef<const c10::IValue> inputs) {
    std::string text = "[";
    for (const c10::IValue& input : inputs) {
      text += text.size() > 1 ? ", [" : "[";
      if (input.isTensor() && input.toTensor().defined()) {
        const auto sizes = input.toTensor().sizes();
        for (std::size_t i = 0; i < sizes.size(); ++i)
          text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
      }
      text += ']';
    }
    return text + ']';
  }

  // ---- Under the lock ----

  std::size_t add(const std::string& name, const std::shared_ptr<OpenCall>& outer) {
    Call call;
    call.name = profile_.names.number(name);
    call.parent = outer == nullptr ? -1 : static_cast<std::int32_t>(outer->number);
    call.thread = at::RecordFunction::currentThreadId();
    profile_.calls.push_back(call);
    has_module_.push_back(false);
    return profile_.calls.size() - 1;
  }

  // The first module that is known of a call stays.
  void take_module(std::size_t number, trace::Name module) {
    if (has_module_[number]) return;
    has_module_[number] = true;
    profile_.calls[number].module = module;
  }

  Call& add_allocation(const std::string& name, const std::shared_ptr<OpenCall>& outer,
                       trace::Name module) {
    const std::size_t number = add(name, outer);
    take_module(number, module);
    Call& call = profile_.calls[number];
    call.kind = CallKind::allocation;
    call.start_ns = call.end_ns = wall_time_ns();
    return call;
  }

  Call& call_of(const std::shared_ptr<OpenCall>& open) {
    return open != nullptr ? profile_.calls[open->number] : add_allocation(kOutsideCalls, open, 0);
  }

  // A dry run names the operator that runs on the card: that call, or memory of its own name within
  // the innermost one.
  Call& call_that_allocates(const std::shared_ptr<OpenCall>& innermost_call, trace::Name module) {
    const std::string_view running = without_overload(trace::here.operation);
    const std::string_view name = running.empty() ? "aten::empty" : running;
    const OpenCall* open = innermost_call.get();
    while (open != nullptr && open->name != name) open = open->outer.get();
    if (open == nullptr) return add_allocation(std::string(name), innermost_call, module);
    take_module(open->number, module);
    Call& call = profile_.calls[open->number];
    return call.module == module ? call : add_allocation(std::string(name), innermost_call, module);
  }

  void sample(const std::string& device, std::int64_t change) {
    const trace::Name name = profile_.names.number(device);
    allocated_[name] += Bytes(change);
    profile_.samples.push_back({wall_time_ns(), name, allocated_[name]});
  }

  const gpu::CatalogueCard* const rates_;
  KnownOperators operators_;
  std::mutex mutex_;  // guards the members below; taken after a card's lock
  memory::Profile profile_;
  std::vector<bool> has_module_;            // by call
  std::map<trace::Name, Bytes> allocated_;  // by device
  Attribution attribution_;                 // has a lock of its own, but shares the names
};

// Tells the recorder of one card, and the observer that was there before.
class CardObserver final : public sim::Observer {
 public:
  CardObserver(std::shared_ptr<sim::Card> card, std::shared_ptr<CallRecorder> recorder)
      : card_(std::move(card)),
        recorder_(std::move(recorder)),
        name_(card_->device().str()),
        before_(card_->observe(this)) {}
  CardObserver(const CardObserver&) = delete;
  CardObserver& operator=(const CardObserver&) = delete;
  ~CardObserver() override { card_->observe(before_); }

  void on_operator(const sim::OperatorCall& call) override {
    recorder_->on_operator(call);
    if (before_ != nullptr) before_->on_operator(call);
  }
  void on_request() override {
    if (before_ != nullptr) before_->on_request();
  }
  void on_assumption(std::string_view what) override {
    if (before_ != nullptr) before_->on_assumption(what);
  }
  void on_event(const allocator::AllocatorEvent& event) override {
    recorder_->on_event(event, name_);
    if (before_ != nullptr) before_->on_event(event);
  }

 private:
  const std::shared_ptr<sim::Card> card_;
  const std::shared_ptr<CallRecorder> recorder_;
  const std::string name_;
  sim::Observer* before_ = nullptr;
};

class SimulatedProfiling final : public memory::Profiling {
 public:
  explicit SimulatedProfiling(const memory::NamedTensors& tensors) {
    const auto first = sim::card_of(c10::Device(c10::DeviceType::PrivateUse1, 0));
    recorder_ = std::make_shared<CallRecorder>(tensors, rates_of(*first));
    profilers::ProfilerStateBase::push(recorder_);
    for (int i = 0; i < sim::card_count(); ++i)
      observers_.push_back(std::make_unique<CardObserver>(
          sim::card_of(c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(i))),
          recorder_));
    recorder_->setCallbackHandle(at::addThreadLocalCallback(
        at::RecordFunctionCallback(&CallRecorder::begin, &CallRecorder::end)
            .needsInputs(true)
            .needsOutputs(true)
            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION,
                     at::RecordScope::USER_SCOPE})));
  }
  SimulatedProfiling(const SimulatedProfiling&) = delete;
  SimulatedProfiling& operator=(const SimulatedProfiling&) = delete;
  ~SimulatedProfiling() override { stop(); }

  void know(const memory::NamedTensors& tensors) override { recorder_->know(tensors); }
  void begin_step() override { recorder_->begin_step(); }
  memory::Profile end() override {
    stop();
    return memory::without_repeated_calls(recorder_->profile());
  }

 private:
  // On another thread the profiler is not the current one.
  void stop() {
    observers_.clear();
    if (current_profiler() != recorder_.get()) return;
    recorder_->removeCallback();
    (void)profilers::ProfilerStateBase::pop(/*global=*/false);
  }

  std::shared_ptr<CallRecorder> recorder_;
  std::vector<std::unique_ptr<CardObserver>> observers_;
};

std::unique_ptr<memory::Profiling> profile_cards(const memory::NamedTensors& tensors) {
  if (sim::card_count() == 0) return nullptr;
  return std::make_unique<SimulatedProfiling>(tensors);
}

const memory::RegisterProfiling registration(&profile_cards);

}  // namespace
}  // namespace headroom::dryrun::detail

#include "headroom/profile/detail/call_recorder.h"

#include <atomic>

#include "headroom/base/time.h"
#include "headroom/forecast/step_time.h"
#include "headroom/trace/where.h"

namespace headroom::profile::detail {

// A call that runs now, on its thread. Calls inside it may hold it longer than LibTorch holds its
// name.
struct OpenCall {
  std::shared_ptr<CallRecorder> recorder;
  std::shared_ptr<OpenCall> outer;
  std::size_t number = 0;
  std::string name;
  CallWork work;
  // The card runs it: calls by its kernel, for shapes or values, are the simulation's own work.
  bool runs_on_card = false;
  // Written on the thread where a call ends, which may be another one.
  std::atomic<bool> called_work = false;  // an operator that it called took device time
  std::atomic<bool> has_ended = false;
};

namespace {

namespace profilers = torch::profiler::impl;

constexpr const char* kOutsideCalls = "[memory]";  // as in PyTorch's table

struct CallContext : at::ObserverContext {
  explicit CallContext(std::shared_ptr<OpenCall> of) : open(std::move(of)) {}
  std::shared_ptr<OpenCall> open;
};
thread_local std::shared_ptr<OpenCall> innermost;

// The profiler of this thread; null if there is none. ProfilerStateBase has the same under names
// that differ between versions.
c10::DebugInfoBase* current_profiler() {
  return c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE);
}

// "aten::mul" for "aten::mul.Tensor": a profile has PyTorch's names, without the overload.
std::string_view without_overload(std::string_view name) {
  return name.substr(0, name.find('.'));
}

std::string shapes_of(c10::ArrayRef<const c10::IValue> inputs) {
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

}  // namespace

CallRecorder::CallRecorder(const NamedTensors& tensors, const gpu::CatalogueCard* rates)
    : ProfilerStateBase(profilers::ProfilerConfig(profilers::ProfilerState::PRIVATEUSE1,
                                                  /*report_input_shapes=*/true,
                                                  /*profile_memory=*/true)),
      rates_(rates),
      attribution_({.step = {}, .parameters = tensors}, profile_.names) {
  profile_.knows_modules = !tensors.empty();
  attribution_.begin_step();
}

void CallRecorder::start() {
  ProfilerStateBase::push(shared_from_this());
  setCallbackHandle(at::addThreadLocalCallback(
      at::RecordFunctionCallback(&begin, &end)
          .needsInputs(true)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION,
                   at::RecordScope::USER_SCOPE})));
}

void CallRecorder::stop() {
  if (current_profiler() != this) return;
  removeCallback();
  (void)ProfilerStateBase::pop(/*global=*/false);
}

void CallRecorder::know(const NamedTensors& tensors) {
  const std::lock_guard lock(mutex_);
  attribution_.know({.step = {}, .parameters = tensors});
  profile_.knows_modules = profile_.knows_modules || !tensors.empty();
}

Profile CallRecorder::profile() {
  const std::lock_guard lock(mutex_);
  for (Call& call : profile_.calls)
    if (call.end_ns == 0) call.end_ns = wall_time_ns();
  profile_.simulated_time = profile_.has_device;
  if (profile_.has_device) profile_.rates_of = forecast::card_or_a100(rates_).brief;
  return without_repeated_calls(profile_);
}

profilers::ActiveProfilerType CallRecorder::profilerType() {
  return profilers::ActiveProfilerType::PRIVATEUSE1;
}

// ---- Calls ----

std::unique_ptr<at::ObserverContext> CallRecorder::begin(const at::RecordFunction& call) {
  auto* const recorder = dynamic_cast<CallRecorder*>(current_profiler());
  const std::string_view name = call.name();
  if (recorder == nullptr || is_left_out(name) || name.starts_with(kModuleRange)) return nullptr;
  const Open outer = recorder->innermost_here();
  if (outer != nullptr && outer->runs_on_card) return nullptr;
  innermost = recorder->opened(call, outer);
  return std::make_unique<CallContext>(innermost);
}

void CallRecorder::end(const at::RecordFunction& call, at::ObserverContext* context) {
  if (context == nullptr) return;
  const Open open = static_cast<CallContext*>(context)->open;
  open->has_ended = true;
  open->recorder->close(call, *open);
  if (innermost == open) innermost = open->outer;
}

CallRecorder::Open CallRecorder::innermost_here() const {
  while (innermost != nullptr && innermost->has_ended) {
    const Open outer = innermost->outer;
    innermost = outer;
  }
  return innermost != nullptr && innermost->recorder.get() == this ? innermost : nullptr;
}

CallRecorder::Open CallRecorder::opened(const at::RecordFunction& call, const Open& outer) {
  auto open = std::make_shared<OpenCall>();
  open->recorder = shared_from_this();
  open->outer = outer;
  open->name = call.name();
  const bool is_range = call.scope() == at::RecordScope::USER_SCOPE;
  if (const OperatorFacts* const facts = operators_.facts_of(call))
    open->work = CallWork(call, *facts);
  const std::string shapes = is_range ? std::string() : shapes_of(call.inputs());
  const std::lock_guard lock(mutex_);
  open->number = add(open->name, outer);
  Call& record = profile_.calls.back();
  record.kind = is_range ? CallKind::range : CallKind::operation;
  record.shapes = profile_.names.number(shapes);
  record.start_ns = wall_time_ns();
  return open;
}

void CallRecorder::close(const at::RecordFunction& call, OpenCall& open) {
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

// ---- Memory ----

// A card's own observer reports its memory.
void CallRecorder::reportMemoryUsage(void* /*pointer*/, std::int64_t bytes,
                                     std::size_t /*allocated*/, std::size_t /*reserved*/,
                                     c10::Device device) {
  if (!device.is_cpu()) return;
  const Open open = innermost_here();
  const std::lock_guard lock(mutex_);
  sample("cpu", bytes);
  if (bytes > 0) call_of(open).cpu += Bytes(bytes);
}

void CallRecorder::on_operator(const sim::OperatorCall& call) {
  (void)attribution_.on_operator(call);
  const Open open = innermost_here();
  const std::lock_guard lock(mutex_);
  profile_.has_device = true;
  if (open == nullptr || open->name != without_overload(call.name)) return;
  open->runs_on_card = true;
  take_module(open->number, attribution_.now().module);
}

void CallRecorder::on_event(const allocator::AllocatorEvent& event, const std::string& device) {
  using Kind = allocator::AllocatorEvent::Kind;
  if (event.kind != Kind::alloc && event.kind != Kind::free_requested) return;
  const Open open = innermost_here();
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

std::size_t CallRecorder::add(const std::string& name, const Open& outer) {
  Call call;
  call.name = profile_.names.number(name);
  call.parent = outer == nullptr ? -1 : static_cast<std::int32_t>(outer->number);
  call.thread = at::RecordFunction::currentThreadId();
  profile_.calls.push_back(call);
  has_module_.push_back(false);
  return profile_.calls.size() - 1;
}

// The first module that is known of a call stays.
void CallRecorder::take_module(std::size_t number, trace::Name module) {
  if (has_module_[number]) return;
  has_module_[number] = true;
  profile_.calls[number].module = module;
}

Call& CallRecorder::add_allocation(const std::string& name, const Open& outer, trace::Name module) {
  const std::size_t number = add(name, outer);
  take_module(number, module);
  Call& call = profile_.calls[number];
  call.kind = CallKind::allocation;
  call.start_ns = call.end_ns = wall_time_ns();
  return call;
}

Call& CallRecorder::call_of(const Open& open) {
  return open != nullptr ? profile_.calls[open->number] : add_allocation(kOutsideCalls, open, 0);
}

// A dry run names the operator that runs on the card: that call, or memory of its own name within
// the innermost one.
Call& CallRecorder::call_that_allocates(const Open& innermost_call, trace::Name module) {
  const std::string_view running = without_overload(trace::here.operation);
  const std::string_view name = running.empty() ? "aten::empty" : running;
  const OpenCall* open = innermost_call.get();
  while (open != nullptr && (open->has_ended || open->name != name)) open = open->outer.get();
  if (open == nullptr) return add_allocation(std::string(name), innermost_call, module);
  take_module(open->number, module);
  Call& call = profile_.calls[open->number];
  return call.module == module ? call : add_allocation(std::string(name), innermost_call, module);
}

void CallRecorder::sample(const std::string& device, std::int64_t change) {
  const trace::Name name = profile_.names.number(device);
  allocated_[name] += Bytes(change);
  profile_.samples.push_back({wall_time_ns(), name, allocated_[name]});
}

}  // namespace headroom::profile::detail

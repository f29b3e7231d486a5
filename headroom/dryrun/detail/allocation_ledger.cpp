#include "headroom/dryrun/detail/allocation_ledger.h"

#include <algorithm>
#include <utility>

#include "headroom/base/time.h"
#include "headroom/dryrun/detail/module_peaks.h"
#include "headroom/sim/tensor.h"
#include "headroom/trace/recording_observer.h"

namespace headroom::dryrun::detail {
namespace {

using trace::Category;
using trace::Phase;

constexpr std::int64_t kRounding = 512;  // of CUDA's allocator

// All but the temporaries.
constexpr std::pair<Category, Bytes trace::Parts::*> kPartOf[] = {
    {Category::parameter, &trace::Parts::parameters},
    {Category::buffer, &trace::Parts::buffers},
    {Category::input, &trace::Parts::inputs},
    {Category::gradient, &trace::Parts::gradients},
    {Category::optimizer, &trace::Parts::optimizer},
    {Category::activation, &trace::Parts::activations},
    {Category::workspace, &trace::Parts::workspace}};

Bytes rounded(Bytes bytes) {
  return Bytes{(bytes.count + kRounding - 1) / kRounding * kRounding};
}

void raise(Bytes& peak, Bytes now) {
  peak = std::max(peak, now);
}

bool is_block(const allocator::AllocatorEvent& allocator_event) {
  using Kind = allocator::AllocatorEvent::Kind;
  return allocator_event.kind == Kind::alloc || allocator_event.kind == Kind::free_requested;
}

// The program's line before the card's lock is taken: reading it may wait for the interpreter's.
thread_local std::string_view line_of_request;

}  // namespace

Ledger::Ledger(sim::Card& card, const Subject& subject)
    : card_(card), attribution_(subject, trace_->names) {
  take_what_is_there();
  mark(subject);
}

Ledger::Ledger(sim::Card& card, ProgramLine line)
    : card_(card), attribution_({}, trace_->names), line_(std::move(line)) {
  take_what_is_there();
}

void Ledger::know(const Subject& subject) {
  {
    const std::lock_guard lock(mutex_);  // of the names
    attribution_.know(subject);
  }
  mark(subject);
}

void Ledger::take_what_is_there() {
  for (const allocator::SegmentInfo& segment : card_.snapshot())
    for (const allocator::BlockInfo& block : segment.blocks) {
      if (block.state != allocator::BlockInfo::State::allocated) continue;
      Allocation there;
      there.was_there = true;
      there.block = block.size;
      there.made.address = block.address;
      there.made.bytes = block.requested;
      there.made.stream = block.stream;
      there.made.phase = Phase::init;
      there.made.kind = trace::Kind::alloc;
      there.made.device = static_cast<std::uint16_t>(card_.index());
      there.event = static_cast<std::uint32_t>(trace_->events.size());
      trace_->events.push_back(there.made);
      live_[block.address] = allocations_.size();
      allocations_.push_back(there);
      allocated_ += block.size;
      active_ += rounded(block.requested);
      requested_ += block.requested;
    }
  peak_ = {
      .allocated = allocated_, .active = active_, .requested = requested_, .phase = Phase::init};
  peak_event_ = static_cast<std::uint32_t>(trace_->events.size()) - 1;
}

trace::Name Ledger::owner(const std::string& tensor) {
  const std::lock_guard lock(mutex_);
  return trace_->names.number(module_of(tensor));
}

void Ledger::mark(const Subject& subject) {
  for (const at::Tensor& input : subject.inputs) mark(input, Category::input);
  for (const at::Tensor& state : subject.states) mark(state, Category::optimizer);
  for (const auto& [name, tensor] : subject.buffers) mark(tensor, Category::buffer, owner(name));
  // In reverse: a parameter that two modules share counts for the first of them.
  for (auto it = subject.parameters.rbegin(); it != subject.parameters.rend(); ++it) {
    const auto& [name, tensor] = *it;
    mark(tensor, Category::parameter, owner(name));
    mark(tensor.grad(), Category::gradient, owner(name));
  }
}

void Ledger::know_gradients(const std::vector<Named>& gradients) {
  for (const auto& [name, tensor] : gradients) mark(tensor, Category::gradient, owner(name));
}

void Ledger::know_states(const std::vector<Named>& states) {
  for (const auto& [name, tensor] : states) mark(tensor, Category::optimizer, owner(name), false);
}

void Ledger::mark(const at::Tensor& tensor, Category category, trace::Name module,
                  bool may_be_known) {
  const auto address = sim::address_of(tensor);
  if (!address) return;
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(*address);
  if (found == live_.end()) return;
  Allocation& allocation = allocations_[found->second];
  if (!may_be_known && allocation.made.category != Category::unknown) return;
  allocation.made.category = category;
  if (module != 0) allocation.made.module = module;
}

void Ledger::mark_gradients() {
  for (const at::Tensor& parameter : attribution_.parameters())
    if (const at::Tensor& gradient = parameter.grad(); gradient.defined())
      mark(gradient, Category::gradient);
}

double Ledger::seconds() const {
  if (trace_->events.empty()) return 0;
  return static_cast<double>(wall_time_ns() - trace_->events.front().time_ns) / 1e9;
}

void Ledger::begin_step(std::uint32_t step) {
  attribution_.begin_step();
  const std::lock_guard lock(mutex_);
  step_ = step;
  steps_.push_back({.step = step, .allocated = allocated_, .after = {}});
}

void Ledger::end_step() {
  mark_gradients();
  const std::lock_guard lock(mutex_);
  steps_.back().after = allocated_;
}

void Ledger::on_operator(const sim::OperatorCall& call) {
  touched_ = true;
  const Attribution::Seen seen = attribution_.on_operator(call);
  const bool mark_now = [&] {
    const std::lock_guard lock(mutex_);
    if (seen.is_backward) gradients_marked_ = false;
    return seen.after_backward && !std::exchange(gradients_marked_, true);
  }();
  if (mark_now) mark_gradients();
}

void Ledger::on_request() {
  line_of_request = line_ ? line_() : std::string_view();
}

void Ledger::on_assumption(std::string_view what) {
  const std::string where(line_ ? line_() : std::string_view());
  const std::lock_guard lock(mutex_);
  ++assumptions_[{std::string(what), where}];
}

void Ledger::on_event(const allocator::AllocatorEvent& allocator_event) {
  touched_ = true;
  const Whereabouts at = attribution_.now();
  const std::string_view operation = trace::here.operation;
  const std::lock_guard lock(mutex_);
  trace::Event event;
  event.kind = trace::kind_of(allocator_event.kind);
  event.time_ns = wall_time_ns();
  event.address = allocator_event.address;
  event.bytes = allocator_event.size;
  event.stream = allocator_event.stream;
  event.device = static_cast<std::uint16_t>(card_.index());
  event.step = step_;
  event.phase = line_ && step_ == 0 ? Phase::init : at.phase;
  if (is_block(allocator_event)) {
    event.module = at.module;
    event.operation = trace_->names.number(operation.empty() ? "aten::empty" : operation);
  }
  if (allocator_event.kind == allocator::AllocatorEvent::Kind::alloc) add(allocator_event, event);
  if (allocator_event.kind == allocator::AllocatorEvent::Kind::free_requested)
    remove(allocator_event.address, event);
  trace_->events.push_back(event);
}

void Ledger::add(const allocator::AllocatorEvent& allocator_event, trace::Event event) {
  Allocation allocation;
  allocation.event = static_cast<std::uint32_t>(trace_->events.size());
  allocation.block = allocator_event.block;
  allocation.was_there = step_ == 0;
  if (line_) event.line = trace_->names.number(line_of_request);
  if (trace_->names.text(event.operation) == sim::kWorkspace) {
    event.category = Category::workspace;
    event.module = 0;  // every module uses it
  }
  allocation.made = event;
  live_[allocator_event.address] = allocations_.size();
  allocations_.push_back(allocation);

  allocated_ += allocator_event.block;
  requested_ += allocator_event.size;
  if (event.category != Category::workspace) active_ += rounded(allocator_event.size);
  raise(peak_.active, active_);
  raise(peak_.requested, requested_);
  if (!steps_.empty()) raise(steps_.back().allocated, allocated_);
  raise(peaks_of_phases_[static_cast<std::size_t>(event.phase)], allocated_);
  if (allocated_ <= peak_.allocated) return;
  peak_.allocated = allocated_;
  peak_.phase = event.phase;
  peak_.step = step_;
  peak_event_ = allocation.event;
  line_at_peak_ = event.line;
}

void Ledger::remove(std::uint64_t address, const trace::Event& event) {
  const auto found = live_.find(address);
  if (found == live_.end()) return;
  Allocation& allocation = allocations_[found->second];
  allocation.died = static_cast<std::uint32_t>(trace_->events.size());
  allocation.phase_died = event.phase;
  allocation.step_died = event.step;
  allocated_ -= allocation.block;
  requested_ -= allocation.made.bytes;
  if (allocation.made.category != Category::workspace) active_ -= rounded(allocation.made.bytes);
  live_.erase(found);
}

Category Ledger::category_of(const Allocation& allocation) {
  if (allocation.made.category != Category::unknown) return allocation.made.category;
  const bool outlives_step =
      allocation.step_died == 0 || allocation.step_died > allocation.made.step;
  switch (allocation.made.phase) {
    case Phase::init:
      return allocation.phase_died == Phase::init ? Category::temporary : Category::input;
    case Phase::forward:
      return !outlives_step && allocation.phase_died == Phase::forward ? Category::temporary
                                                                       : Category::activation;
    case Phase::optimizer:
      return outlives_step ? Category::optimizer : Category::temporary;
    default:
      return Category::temporary;
  }
}

void Ledger::settle_categories() {
  for (const at::Tensor& parameter : attribution_.parameters()) {
    const auto address = sim::address_of(parameter);
    const auto found = address ? live_.find(*address) : live_.end();
    if (found == live_.end()) continue;
    Allocation& allocation = allocations_[found->second];
    if (allocation.was_there && allocation.made.category == Category::unknown)
      allocation.made.category = Category::parameter;
  }
  for (Allocation& allocation : allocations_) {
    allocation.made.category = category_of(allocation);
    trace_->events[allocation.event].category = allocation.made.category;
    trace_->events[allocation.event].module = allocation.made.module;
    trace_->events[allocation.event].line = allocation.made.line;
  }
}

bool Ledger::lives_at_peak(const Allocation& allocation) const {
  return allocation.event <= peak_event_ && peak_event_ < allocation.died;
}

trace::Parts Ledger::parts_at_peak() const {
  trace::Parts parts;
  const auto part = [&](Category category) -> Bytes& {
    const auto* const found = std::find_if(std::begin(kPartOf), std::end(kPartOf),
                                           [&](const auto& row) { return row.first == category; });
    return found == std::end(kPartOf) ? parts.temporaries : parts.*found->second;
  };
  for (const Allocation& allocation : allocations_) {
    if (!lives_at_peak(allocation)) continue;
    part(allocation.made.category) += allocation.made.bytes;
    parts.rounding += allocation.block - allocation.made.bytes;
  }
  return parts;
}

std::vector<trace::ModulePeak> Ledger::peaks_of_modules() const {
  std::vector<std::pair<std::uint32_t, const Allocation*>> ends;
  for (const Allocation& allocation : allocations_)
    if (allocation.died != kLivesOn) ends.emplace_back(allocation.died, &allocation);
  std::sort(ends.begin(), ends.end());
  ModulePeaks modules(trace_->names);
  auto end = ends.begin();
  for (const Allocation& allocation : allocations_) {
    for (; end != ends.end() && end->first < allocation.event; ++end)
      modules.give_back(end->second->made.module, end->second->made.bytes);
    modules.take(allocation.made.module, allocation.made.bytes);
  }
  return modules.largest_first();
}

std::vector<trace::LiveTensor> Ledger::biggest_at_peak(std::size_t count) const {
  std::vector<const Allocation*> held;
  for (const Allocation& allocation : allocations_)
    if (lives_at_peak(allocation)) held.push_back(&allocation);
  count = std::min(count, held.size());
  std::stable_sort(held.begin(), held.end(), [](const Allocation* a, const Allocation* b) {
    return a->made.bytes > b->made.bytes;
  });
  std::vector<trace::LiveTensor> biggest;
  for (std::size_t i = 0; i < count; ++i) {
    const trace::Event& made = held[i]->made;
    biggest.push_back({.bytes = made.bytes,
                       .category = made.category,
                       .phase = made.phase,
                       .step = made.step,
                       .module = std::string(trace_->names.text(made.module)),
                       .operation = std::string(trace_->names.text(made.operation)),
                       .line = std::string(trace_->names.text(made.line))});
  }
  return biggest;
}

void Ledger::add_lines_and_phases(trace::Report& report) const {
  if (!line_) return;
  report.line_at_peak = trace_->names.text(line_at_peak_);
  std::unordered_map<trace::Name, Bytes> lines;
  for (const Allocation& allocation : allocations_)
    if (lives_at_peak(allocation)) lines[allocation.made.line] += allocation.made.bytes;
  for (const auto& [line, bytes] : lines)
    if (line != 0) report.by_line.push_back({std::string(trace_->names.text(line)), bytes});
  std::sort(report.by_line.begin(), report.by_line.end(), [](const auto& a, const auto& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.line < b.line;
  });
  for (std::size_t i = 0; i < peaks_of_phases_.size(); ++i)
    if (peaks_of_phases_[i].count > 0)
      report.by_phase.push_back({static_cast<Phase>(i), peaks_of_phases_[i]});
}

// Takes no lock: the run has ended, and the card's lock must not be taken after mutex_.
trace::Report Ledger::settle(const Options& options) {
  settle_categories();
  trace::Report report;
  report.peak = peak_;
  report.peak.reserved = Bytes{card_.statistics().reserved_bytes.all.peak};
  report.peak.process = report.peak.reserved + card_.options().context;
  report.at_peak = parts_at_peak();
  report.by_module = peaks_of_modules();
  report.per_step = steps_;
  report.biggest = biggest_at_peak(options.biggest);
  add_lines_and_phases(report);
  for (const auto& [place, count] : assumptions_)
    report.assumptions.push_back({place.first, place.second, count});
  if (options.keep_trace) report.trace = trace_;
  const sim::CardOptions& card = card_.options();
  report.allocator = allocator::to_string(card.settings);
  if (card.capacity < allocator::kUnlimited) {
    report.card = card.name;
    report.room = card.capacity - card.context;
  }
  return report;
}

}  // namespace headroom::dryrun::detail

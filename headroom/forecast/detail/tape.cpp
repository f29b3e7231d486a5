#include "headroom/forecast/detail/tape.h"

#include <algorithm>

#include "headroom/base/error.h"

namespace headroom::forecast::detail {

// ---- Nodes ----

Node& NodeStack::push() {
  if (size_ == blocks_.size() * kBlock) blocks_.push_back(std::make_unique<Block>());
  ++size_;
  top().role = Node::Role::operation;
  return top();
}

void NodeStack::clear() {
  blocks_.clear();
  size_ = 0;
}

// ---- Memory ----

// Destroys values before the storages that they refer to.
Tape::~Tape() {
  outbox_.clear();
  nodes_.clear();
  parameters_.clear();
}

Value Tape::make(std::int64_t count, Type type) {
  check_bytes(static_cast<double>(count) * static_cast<double>(size_of(type)));
  if (unused_.empty()) {
    storages_.push_back({});
    unused_.push_back(&storages_.back());
  }
  Storage* const storage = unused_.back();
  unused_.pop_back();
  const std::int64_t bytes = count * size_of(type);
  *storage = {this, bytes, 0, phase_ == Phase::forward ? &Held::activations : &Held::temporaries};
  live_.*storage->part += bytes;
  live_.rounded += rounded(bytes);
  effort_->add_written(static_cast<double>(bytes));
  note_peak();
  return {storage, count, type};
}

void Tape::free(Storage* storage) {
  live_.*storage->part -= storage->bytes;
  live_.rounded -= rounded(storage->bytes);
  unused_.push_back(storage);
}

void Tape::touch(std::int64_t bytes) {
  const Value while_it_runs = make(bytes, Type::boolean);
}

void Tape::note_peak() {
  Held& peak = peaks_[static_cast<std::size_t>(phase_)];
  if (live_.rounded > peak.rounded) peak = live_;
}

void Tape::reclassify(const Value& value, std::int64_t Held::*part) {
  Storage* const storage = value.storage();
  if (storage == nullptr) return;
  live_.*storage->part -= storage->bytes;
  storage->part = part;
  live_.*part += storage->bytes;
}

Parameter& Tape::parameter(std::int64_t rows, std::int64_t columns, Type type, bool trained) {
  if (cursor_ < parameters_.size()) {
    Parameter& known = parameters_[cursor_++];
    if (known.rows != rows || known.columns != columns)
      throw InternalError("Tape::parameter", "a layer that runs again asks for other parameters");
    return known;
  }
  const auto lines = static_cast<double>(rows * times_);
  check_bytes(16 * (numbers_ += lines * static_cast<double>(columns)));
  Parameter& made = parameters_.emplace_back();
  made.rows = rows;
  made.columns = columns;
  made.type = type;
  made.trained = trained;
  made.times = times_;
  made.module = module_;
  ++cursor_;
  return made;
}

Value Tape::use(Parameter& parameter) {
  Value value(nullptr, parameter.count(), parameter.type);
  if (!parameter.trained || !records()) return value;
  value.edge.parameter = &parameter;
  ++parameter.uses;
  return value;
}

// ---- The graph ----

void Tape::set_module(int module) {
  module_ = module;
  const auto at = static_cast<std::size_t>(module);
  if (efforts_.size() <= at) efforts_.resize(at + 1);
  effort_ = &efforts_[at][phase_ == Phase::forward ? 0 : 1];
}

Node& Tape::record(Backward backward) {
  Node& node = nodes_.push();
  node.module = module_;
  node.backward = std::move(backward);
  return node;
}

void Tape::record(Value& result, Backward backward) {
  result.edge = {&record(std::move(backward)), nullptr, 0};
}

void Tape::send(const Edge& edge, Value gradient) {
  if (edge) outbox_.emplace_back(edge, std::move(gradient));
}

// Adds in place if nothing else holds the gradient that has arrived.
void Tape::arrive(Value& place, Value gradient) {
  if (!place) {
    place = std::move(gradient);
    return;
  }
  if (place.is_only_owner() || place.storage() == nullptr) return;
  const bool by_token = place.by_token;
  place = make(place.count, place.type);
  place.by_token = by_token;
}

void Tape::deliver(const Edge& edge, Value gradient) {
  gradient.edge = {};
  if (edge.node != nullptr) {
    arrive(edge.node->arrived[static_cast<std::size_t>(edge.slot)], std::move(gradient));
    return;
  }
  // A parameter that is used twice waits for both gradients and gets a new tensor for their sum.
  Parameter& parameter = *edge.parameter;
  const Value before = parameter.arriving;
  arrive(parameter.arriving, std::move(gradient));
  if (--parameter.uses <= 0) accumulate(parameter);
}

void Tape::accumulate(Parameter& parameter) {
  parameter.uses = 0;
  Value arrived = std::exchange(parameter.arriving, Value());
  if (options_.steps_in_backward) {
    if (options_.bytes_of_step) touch(options_.bytes_of_step(parameter));
    return;
  }
  if (options_.gradients_are_there) return;  // added in place
  if (parameter.gradient) {  // from a part that ran again; in PyTorch both arrive together
    touch(arrived.count * size_of(arrived.type));
    return;
  }
  if (!arrived.is_only_owner()) arrived = make(arrived.count, arrived.type);
  reclassify(arrived, &Held::gradients);
  parameter.gradient = std::move(arrived);
  note_peak();
  if (options_.kept_share_of_gradients < 1) shrink(*parameter.gradient.storage());
}

void Tape::shrink(Storage& storage) {
  const auto left = static_cast<std::int64_t>(options_.kept_share_of_gradients *
                                              static_cast<double>(storage.bytes));
  live_.*storage.part -= storage.bytes - left;
  live_.rounded -= rounded(storage.bytes) - rounded(left);
  storage.bytes = left;
}

void Tape::deliver() {
  std::vector<std::pair<Edge, Value>> mail;
  mail.swap(outbox_);
  for (auto& [edge, gradient] : mail) deliver(edge, std::move(gradient));
  mail.clear();
  if (outbox_.empty()) outbox_.swap(mail);  // reuses its memory
}

// Releases the node's received and kept tensors before its own gradients arrive at their
// destinations.
void Tape::run(Node& node) {
  {
    const Backward backward = std::exchange(node.backward, nullptr);
    Gradients arrived = std::exchange(node.arrived, Gradients());
    backward(*this, arrived);
  }
  deliver();
}

void Tape::run_backward(std::size_t from) {
  while (nodes_.size() > from) {
    Node& node = nodes_.top();
    if (node.module != module_) set_module(node.module);
    if (node.role == Node::Role::repeat_ends) {
      segments_.push_back(begin_segment());
    } else if (node.role == Node::Role::repeat_begins) {
      const Segment segment = segments_.back();
      segments_.pop_back();
      end_segment(segment, node.more);
    } else if (node.arrived[0] || node.arrived[1] || node.arrived[2]) {
      run(node);
    } else {
      node.backward = nullptr;  // no gradient came: release the kept tensors
    }
    nodes_.pop();
  }
}

void Tape::backward(Value loss) {
  const Edge edge = loss.edge;
  loss.edge = {};
  phase_ = Phase::backward;
  set_module(module_);  // the same one, in the other pass
  deliver(edge, make(loss.count, loss.type));
  run_backward(0);
}

// Autocast releases its copies when it ends. For layers that were not run, only this removes them
// from the count.
void Tape::forget_low_copies() {
  for (Parameter& parameter : parameters_) {
    if (parameter.low.is_only_owner()) {
      Storage& storage = *parameter.low.storage();
      live_.*storage.part -= (parameter.times - 1) * storage.bytes;
      live_.rounded -= (parameter.times - 1) * rounded(storage.bytes);
    }
    parameter.low.reset();
  }
}

// ---- Structure ----

// The change of held memory by the repetitions that are not run.
Held Tape::skipped(const Held& change, std::int64_t more) {
  check_bytes(static_cast<double>(change.rounded) * static_cast<double>(more));
  Held all = change * more;
  if (!options_.keeps_activations) {
    if (phase_ == Phase::forward) elsewhere_ += all.activations;
    all.rounded -= all.activations;
    all.activations = 0;
  }
  return all;
}

Tape::Segment Tape::begin_segment() {
  Held& peak = peaks_[static_cast<std::size_t>(phase_)];
  return {live_, std::exchange(peak, live_), *effort_};
}

// The segment that ran stands for `more` others; the peak is in the first or the last of them.
void Tape::end_segment(const Segment& segment, std::int64_t more) {
  Held& peak = peaks_[static_cast<std::size_t>(phase_)];
  const Held change = skipped(live_ - segment.before, more);
  if (change.rounded > 0) peak += change;
  live_ += change;
  if (segment.peak_before.rounded > peak.rounded) peak = segment.peak_before;
  effort_->repeat_since(segment.effort, static_cast<double>(more));
}

// Runs one repetition for all between the first and the last. Those two differ: nothing is kept
// before the first, and no shared gradient exists before the backward pass of the last.
Value Tape::repeat(std::int64_t times, const Unit& unit, Value states, bool same_parameters) {
  if (times <= 3) {
    for (std::int64_t i = 0; i < times; ++i) states = unit(states);
    return states;
  }
  states = unit(states);
  const std::int64_t more = times - 3, times_before = times_;
  if (!same_parameters) times_ *= times - 2;
  if (records()) {
    Node& begin = record(Backward());
    begin.role = Node::Role::repeat_begins;
    begin.more = more;
  }
  const Segment segment = begin_segment();
  states = unit(states);
  end_segment(segment, more);
  if (records()) record(Backward()).role = Node::Role::repeat_ends;
  times_ = times_before;
  return unit(states);
}

Value Tape::checkpoint(const Unit& part, const Value& x, bool reentrant) {
  if (!records()) return part(x);
  const std::size_t cursor = cursor_;
  paused_ = true;
  Value result = part(x);
  paused_ = false;
  bool learns = x.has_gradient();
  for (std::size_t i = cursor; i < cursor_; ++i) learns = learns || parameters_[i].trained;
  if (!learns) return result;
  record(result, [part, x, reentrant, cursor](Tape& tape, Gradients& gradients) {
    const std::size_t next = std::exchange(tape.cursor_, cursor);
    tape.run_again(part, x, std::move(gradients[0]), reentrant);
    tape.cursor_ = next;
  });
  return result;
}

// Records the part's own graph on top of the existing nodes and runs it at once. The lowest of its
// nodes collects the gradient of the input.
void Tape::run_again(const Unit& part, const Value& x, Value gradient, bool reentrant) {
  const std::size_t from = nodes_.size();
  const std::size_t first = cursor_;
  Value input = x;
  if (x.edge)
    record(input, [to = x.edge](Tape& tape, Gradients& collected) {
      tape.send(to, std::move(collected[0]));
    });
  Value result = part(input);
  for (std::size_t i = first; i < cursor_; ++i) parameters_[i].low.reset();
  const Edge edge = result.edge;
  const Value whole_time = reentrant ? gradient : Value();
  if (!reentrant) result.reset();
  deliver(edge, std::move(gradient));
  run_backward(from);
}

}  // namespace headroom::forecast::detail

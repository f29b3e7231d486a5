#include "headroom/trace/pickle_reader.h"

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "headroom/trace/detail/fault.h"
#include "headroom/trace/detail/frames.h"
#include "headroom/trace/detail/snapshot_start.h"
#include "headroom/trace/detail/unpickle.h"

namespace headroom::trace {
namespace {

using namespace pickle;

constexpr std::int64_t kMostSteps = std::numeric_limits<std::uint32_t>::max();

std::int64_t to_ns(std::int64_t time_us) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 1000;
  return std::clamp(time_us, -kMost, kMost) * 1000;
}

// Maps the names of torch.profiler's categories, and our own.
Category category_of(std::string_view text) {
  if (text == "optimizer_state") return Category::optimizer;
  if (text == "autograd_detail") return Category::temporary;
  for (int i = 0; i < kCategories; ++i)
    if (text == to_string(static_cast<Category>(i))) return static_cast<Category>(i);
  return Category::unknown;
}

Phase phase_of(std::string_view text) {
  for (int i = 0; i < kPhases; ++i)
    if (text == to_string(static_cast<Phase>(i))) return static_cast<Phase>(i);
  return Phase::unknown;
}

// "Optimizer.step#Adam.step", which PyTorch records itself, or a name as in PyTorch's guide to
// snapshots: "## forward ##".
Phase phase_of_annotation(std::string_view name) {
  if (name.starts_with("Optimizer.step#")) return Phase::optimizer;
  const auto is_frame = [](char c) { return c == '#' || c == ' '; };
  while (!name.empty() && is_frame(name.front())) name.remove_prefix(1);
  while (!name.empty() && is_frame(name.back())) name.remove_suffix(1);
  return phase_of(name);
}

// "ProfilerStep#12", as torch.profiler's step() records it.
std::uint32_t step_of_annotation(std::string_view name) {
  constexpr std::string_view kBefore = "ProfilerStep#";
  if (!name.starts_with(kBefore)) return 0;
  std::uint32_t step = 0;
  for (const char c : name.substr(kBefore.size())) {
    if (c < '0' || c > '9' || step > 100'000'000) return 0;
    step = step * 10 + static_cast<std::uint32_t>(c - '0');
  }
  return step;
}

// The place of an entry without frames: its compiled region, or the text that
// torch.cuda.memory._set_memory_metadata set.
std::string_view instead_of_frames(const Entry& entry) {
  const bool compiled = !entry.compile_context.empty() && entry.compile_context != "N/A";
  return compiled ? entry.compile_context : entry.user_metadata;
}

class PickleReader final : public Reader {
 public:
  explicit PickleReader(Input input)
      : input_(std::move(input)), snapshot_(unpickle(input_), input_.name()) {
    about_.format = Format::pickle;
    about_.program = "PyTorch";
    about_.settings = snapshot_.settings();
    for (std::size_t device = 0; device < snapshot_.devices(); ++device) begin(device);
    advance_annotation();
  }

  bool next(Event& event) override {
    Cursor* first = nullptr;
    for (Cursor& cursor : cursors_)
      if (cursor.has_event && (first == nullptr || cursor.event.time_ns < first->event.time_ns))
        first = &cursor;
    if (has_annotation_ && (first == nullptr || annotation_.time_ns <= first->event.time_ns)) {
      event = std::exchange(annotation_, Event{});
      advance_annotation();
      return true;
    }
    if (first == nullptr) return false;
    event = first->event;
    place_in_step(event);
    advance(*first);
    return true;
  }

  [[nodiscard]] const About& about() const override { return about_; }
  [[nodiscard]] const Names& names() const override { return names_; }
  [[nodiscard]] std::uint64_t position() const override { return input_.position(); }
  [[nodiscard]] std::optional<std::uint64_t> size() const override { return input_.size(); }

 private:
  // The events of one device: those of the start, then those of its trace.
  struct Cursor {
    std::uint16_t device = 0;
    Start start;
    std::size_t at_start = 0;
    Items entries;
    std::optional<Entry> entry;      // the next of the trace
    std::optional<Entry> completes;  // the free whose completion is returned next
    bool has_event = false;
    Event event;  // the next event to return
  };

  void begin(std::size_t device);
  void advance(Cursor& cursor);
  void take_entry(Cursor& cursor);
  void advance_annotation();
  Event event_of(const StartEvent& start, const Cursor& cursor);
  Event event_of(const Entry& entry, const Cursor& cursor);
  void place_in_step(Event& event) const;
  std::uint32_t stream(std::int64_t pointer);

  Input input_;
  SnapshotTree snapshot_;
  About about_;
  Names names_;
  Places places_;
  std::unordered_map<std::int64_t, std::uint32_t> streams_{{0, 0}};
  std::vector<Cursor> cursors_;
  Items annotations_ = snapshot_.annotations();
  bool has_annotation_ = false;
  Event annotation_;  // the next to return
  std::uint32_t step_ = 0, next_step_ = 0;
  Phase phase_ = Phase::unknown, next_phase_ = Phase::unknown;
};

void PickleReader::begin(std::size_t device) {
  const auto& traces = snapshot_.traces();
  const Value trace = device < traces.size() ? traces[device] : Value();
  Cursor cursor{.device = static_cast<std::uint16_t>(device),
                .start = start_of(snapshot_, device),
                .entries = snapshot_.tree().items(trace),
                .entry = {},
                .completes = {},
                .event = {}};
  about_.times_are_known = about_.times_are_known || cursor.start.has_times;
  take_entry(cursor);
  advance(cursors_.emplace_back(std::move(cursor)));
}

void PickleReader::take_entry(Cursor& cursor) {
  Value dict;
  cursor.entry.reset();
  if (cursor.entries.next(dict)) cursor.entry = snapshot_.entry(dict);
}

void PickleReader::advance(Cursor& cursor) {
  cursor.has_event = true;
  if (cursor.at_start < cursor.start.events.size()) {
    cursor.event = event_of(cursor.start.events[cursor.at_start++], cursor);
    return;
  }
  // A recording may leave out one half of each free; the reader adds it.
  if (cursor.completes) {
    cursor.completes->kind = Kind::free_completed;
    cursor.event = event_of(*cursor.completes, cursor);
    cursor.completes.reset();
    return;
  }
  if (!cursor.entry) {
    cursor.has_event = false;
    return;
  }
  cursor.event = event_of(*cursor.entry, cursor);
  const bool half =
      cursor.entry->kind == Kind::free_requested
          ? !cursor.start.has_free_completed
          : cursor.entry->kind == Kind::free_completed && !cursor.start.has_free_requested;
  if (half) {
    cursor.event.kind = Kind::free_requested;
    cursor.completes = cursor.entry;
  }
  take_entry(cursor);
}

std::uint32_t PickleReader::stream(std::int64_t pointer) {
  const auto number = static_cast<std::uint32_t>(streams_.size());
  if (number >= detail::kMostStreams && !streams_.contains(pointer))
    detail::fault(input_.name(), input_.position(),
                  "at most " + std::to_string(detail::kMostStreams) + " streams", "more");
  return streams_.try_emplace(pointer, number).first->second;
}

Event PickleReader::event_of(const StartEvent& start, const Cursor& cursor) {
  const Place place = places_.of(snapshot_, start.frames, names_);
  Event event;
  event.kind = start.kind;
  event.time_ns = cursor.entry ? to_ns(cursor.entry->time_us) : 0;
  event.address = start.address;
  event.bytes = start.bytes;
  event.stream = stream(start.stream);
  event.device = cursor.device;
  event.module = place.module;
  event.operation = place.operation;
  event.line = place.line;
  return event;
}

Event PickleReader::event_of(const Entry& entry, const Cursor& cursor) {
  Event event;
  event.kind = entry.kind;
  event.time_ns = to_ns(entry.time_us);
  event.device = cursor.device;
  event.step = static_cast<std::uint32_t>(std::clamp<std::int64_t>(entry.step, 0, kMostSteps));
  event.phase = phase_of(entry.phase);
  const Place place = places_.of(snapshot_, entry.frames, names_);
  event.module = place.module;
  event.line = place.line;
  if (place.is_backward && event.phase == Phase::unknown) event.phase = Phase::backward;
  if (entry.kind == Kind::mark) {
    const bool says_more = entry.action == "user_defined" && !entry.user_metadata.empty();
    event.operation = names_.number(says_more ? entry.user_metadata : entry.action);
    return event;
  }
  event.operation = place.operation;
  event.address = entry.address;
  event.bytes = entry.bytes;
  event.stream = stream(entry.stream);
  event.category = category_of(entry.category);
  if (entry.frames.type() != Type::list) event.line = names_.number(instead_of_frames(entry));
  return event;
}

// ---- Annotations of record_function ----

void PickleReader::place_in_step(Event& event) const {
  if (event.step == 0) event.step = step_;
  if (event.phase == Phase::unknown) event.phase = phase_;
}

// Applies the annotation just returned, and prepares the next one.
void PickleReader::advance_annotation() {
  step_ = next_step_;
  phase_ = next_phase_;
  Value dict;
  has_annotation_ = annotations_.next(dict);
  if (!has_annotation_) return;
  const Annotation found = snapshot_.annotation(dict);
  const bool ends = found.stage == "END";
  annotation_.kind = Kind::mark;
  annotation_.time_ns = to_ns(found.time_us);
  annotation_.device = found.device;
  annotation_.operation = names_.number((ends ? "end " : "begin ") + std::string(found.name));
  if (const auto step = step_of_annotation(found.name); step != 0) next_step_ = ends ? 0 : step;
  if (const auto phase = phase_of_annotation(found.name); phase != Phase::unknown)
    next_phase_ = ends ? Phase::unknown : phase;
}

}  // namespace

bool begins_pickle(std::string_view begin) {
  return begin.starts_with('\x80');
}

std::unique_ptr<Reader> read_pickle(Input input) {
  return std::make_unique<PickleReader>(std::move(input));
}

}  // namespace headroom::trace

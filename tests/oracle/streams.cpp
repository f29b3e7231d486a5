#include "tests/oracle/streams.h"

#include <algorithm>
#include <map>

#include "tests/oracle/pools_dice.h"
#include "tests/oracle/settings_dice.h"
#include "tests/oracle/sizes.h"
#include "tests/oracle/training_steps.h"

namespace headroom::oracle {
namespace {

using allocator::EventRule;
using allocator::Operation;
using allocator::StreamId;
using Kind = Operation::Kind;

// The pattern of one stream's requests.
struct Shape {
  enum class Frees { random, newest_first, oldest_first, any } frees;
  std::uint64_t length;         // operations, about
  std::size_t live;             // so many blocks at a time, about
  StreamId streams;             // how many
  bool trains;                  // steps of training instead of single requests
  bool one_user;                // only stream 1 uses other streams' blocks
  std::uint64_t record_one_in;  // this and what follows; 0: never
  std::uint64_t pools_one_in, empty_one_in, peaks_one_in, change_one_in;
  bool lowers_max_split;
  bool holds_events;
  bool ends_empty;
};

std::uint64_t sometimes(Dice& dice, std::uint64_t chance, std::int64_t often, std::int64_t seldom) {
  return dice.one_in(chance) ? static_cast<std::uint64_t>(dice.log_between(often, seldom)) : 0;
}

Shape make_shape(const std::string& class_name, Dice& dice) {
  Shape shape{};
  shape.frees = dice.pick({Shape::Frees::random, Shape::Frees::newest_first,
                           Shape::Frees::oldest_first, Shape::Frees::any});
  shape.length = static_cast<std::uint64_t>(dice.log_between(50, 2000));
  shape.live = static_cast<std::size_t>(dice.log_between(2, 200));
  // Crowds: thousands of blocks, as in real programs; their lists are long.
  if (dice.one_in(100)) {
    shape.length = 12000;
    shape.live = 4000;
  }
  shape.trains = dice.one_in(6);
  shape.streams = dice.one_in(2) ? 1 : static_cast<StreamId>(dice.between(2, 5));
  shape.one_user = !dice.one_in(4);
  if (shape.streams > 1) shape.record_one_in = sometimes(dice, 2, 4, 40);
  // With expandable memory in private pools, and where max_split_size is lowered, 2.11 has faults
  // that end the comparison: seldom, and not in the longest streams.
  const bool crowd = shape.live > 1000;
  const bool faulty = class_name == "expandable" || class_name == "changed" ||
                      class_name == "large_segment" || class_name == "mixed";
  shape.lowers_max_split = dice.one_in(8) && !crowd;
  shape.pools_one_in = sometimes(dice, faulty ? 12 : 5, 10, 100);
  if (faulty && crowd) shape.pools_one_in = 0;
  shape.empty_one_in = sometimes(dice, 2, 20, 300);
  shape.peaks_one_in = sometimes(dice, 3, 20, 200);
  // A peak of inactive_split that may differ (excuses.h) is soon forgotten.
  if (!shape.one_user || shape.pools_one_in > 0) shape.peaks_one_in = sometimes(dice, 1, 5, 30);
  if (class_name == "changed") shape.change_one_in = sometimes(dice, 1, 20, 200);
  shape.holds_events = dice.one_in(2);
  shape.ends_empty = dice.one_in(4);
  return shape;
}

// Writes the operations of one stream.
class Writer {
 public:
  Writer(const Shape& shape, Dice& dice) : shape_(shape), dice_(dice), sizes_(dice), pools_(dice) {}

  PlainStream write() {
    shape_.trains ? train() : request();
    if (shape_.ends_empty) end_empty();
    return std::move(out_);
  }
  // The most bytes asked for at one time.
  [[nodiscard]] std::int64_t peak() const { return peak_; }

 private:
  struct Live {
    std::uint32_t id;
    std::int64_t bytes;
    allocator::PoolId pool;
    bool recorded = false;          // record_stream was called
    bool recorded_in_pool = false;  // while a private pool was open
  };

  void request();
  void train();
  void end_empty();
  void allocate(std::uint32_t id, std::int64_t bytes);
  void free_at(std::size_t place);
  void avoid_stale_records(const Live& freed);
  std::size_t place_to_free();
  void something_rare();
  bool due(std::uint64_t one_in) { return one_in > 0 && dice_.one_in(one_in); }
  void empty_cache();
  void change_settings();

  const Shape& shape_;
  Dice& dice_;
  Sizes sizes_;
  PoolsDice pools_;
  std::vector<Live> live_;
  bool has_stale_records_ = false;
  std::int64_t bytes_ = 0, peak_ = 0;
  PlainStream out_;
};

void Writer::allocate(std::uint32_t id, std::int64_t bytes) {
  const auto stream = static_cast<StreamId>(dice_.one_in(2) ? 0 : dice_.below(shape_.streams));
  out_.operations.push_back({bytes, id, stream, Kind::allocate});
  live_.push_back({.id = id, .bytes = bytes, .pool = pools_.current()});
  pools_.allocated(live_.back().pool);
  bytes_ += bytes;
  peak_ = std::max(peak_, bytes_);
}

// 2.11 remembers streams recorded while a private pool is open by the address of its own record of
// the block, and forgets them only if the free comes while one is open as well. Else another block
// whose record comes to lie there may lose streams when it is freed while a pool is open: whether
// one does is a matter of the heap, and no stream may depend on it.
void Writer::avoid_stale_records(const Live& freed) {
  if (freed.recorded && has_stale_records_)
    while (pools_.current() != 0) out_.operations.push_back(*pools_.next_end());
  if (freed.recorded_in_pool && pools_.current() == 0) has_stale_records_ = true;
}

void Writer::free_at(std::size_t place) {
  const Live gone = live_[place];
  avoid_stale_records(gone);
  live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(place));
  out_.operations.push_back({.id = gone.id, .kind = Kind::free});
  pools_.freed(gone.pool);
  bytes_ -= gone.bytes;
}

std::size_t Writer::place_to_free() {
  Shape::Frees order = shape_.frees;
  if (order == Shape::Frees::any)
    order =
        dice_.pick({Shape::Frees::random, Shape::Frees::newest_first, Shape::Frees::oldest_first});
  if (order == Shape::Frees::newest_first) return live_.size() - 1;
  return order == Shape::Frees::oldest_first ? 0 : dice_.below(live_.size());
}

void Writer::empty_cache() {
  out_.operations.push_back({.kind = Kind::empty_cache});
  pools_.emptied();
}

void Writer::change_settings() {
  out_.settings_texts.push_back(settings_change(dice_, shape_.lowers_max_split));
  const auto text = static_cast<std::uint32_t>(out_.settings_texts.size() - 1);
  out_.operations.push_back({.id = text, .kind = Kind::change_settings});
}

void Writer::something_rare() {
  if (due(shape_.record_one_in) && !live_.empty()) {
    Live& used = live_[dice_.below(live_.size())];
    const StreamId user = shape_.one_user ? 1 : static_cast<StreamId>(dice_.below(shape_.streams));
    out_.operations.push_back({0, used.id, user, Kind::record_stream});
    pools_.recorded(used.pool);
    used.recorded = true;
    used.recorded_in_pool |= pools_.current() != 0;
  }
  if (shape_.holds_events && due(shape_.record_one_in)) {
    const bool all = dice_.one_in(3);
    const auto stream = static_cast<StreamId>(dice_.below(shape_.streams));
    out_.operations.push_back(
        {.stream = all ? Operation::kAllStreams : stream, .kind = Kind::complete_events});
  }
  if (due(shape_.pools_one_in))
    if (const auto call = pools_.next()) out_.operations.push_back(*call);
  if (due(shape_.empty_one_in)) empty_cache();
  if (due(shape_.peaks_one_in)) out_.operations.push_back({.kind = Kind::reset_peaks});
  if (due(shape_.change_one_in)) change_settings();
}

// Single requests; now more, now fewer blocks live at a time.
void Writer::request() {
  std::size_t wanted = shape_.live;
  for (std::uint32_t id = 0; out_.operations.size() < shape_.length;) {
    something_rare();
    if (dice_.one_in(50)) wanted = dice_.below(2 * shape_.live + 1);
    const bool more = live_.size() < wanted ? !dice_.one_in(4) : dice_.one_in(4);
    if (more || live_.empty())
      allocate(id++, sizes_.next());
    else
      free_at(place_to_free());
  }
}

void Writer::train() {
  TrainingSteps training({.layers = dice_.between(1, 4),
                          .hidden = dice_.log_between(16, 2048),
                          .heads = 4,
                          .vocabulary = dice_.log_between(100, 50000),
                          .batch = dice_.between(1, 16),
                          .sequence = 1,
                          .bytes_per_value = dice_.pick({2, 4})});
  const std::int64_t longest = dice_.log_between(8, 2048);
  const bool varies = dice_.one_in(2);
  while (training.operations().size() < shape_.length)
    training.step(varies ? dice_.between((longest + 1) / 2, longest) : longest);
  for (const Operation& step : training.operations()) {
    if (out_.operations.size() >= shape_.length) break;
    something_rare();
    if (step.kind == Kind::allocate) {
      allocate(step.id, step.bytes);
    } else {
      const auto is_it = [&](const Live& each) { return each.id == step.id; };
      const auto found = std::find_if(live_.begin(), live_.end(), is_it);
      free_at(static_cast<std::size_t>(found - live_.begin()));
    }
  }
}

void Writer::end_empty() {
  while (const auto call = pools_.next_end()) out_.operations.push_back(*call);
  while (!live_.empty()) free_at(place_to_free());
  out_.operations.push_back({.kind = Kind::complete_events});
  out_.operations.back().stream = Operation::kAllStreams;
  empty_cache();
  allocate(0, 1);  // notices the events
  empty_cache();
}

constexpr std::int64_t kFourMiB = 4 << 20;

// Near what the stream asks for at its peak: most are refused, some retry, few, none.
Bytes make_capacity(std::int64_t peak, Dice& dice) {
  if (dice.one_in(6)) return allocator::kUnlimited;
  const double factor = dice.pick({0.3, 0.6, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.5, 3.0});
  const auto bytes = static_cast<std::int64_t>(static_cast<double>(peak) * factor);
  const std::int64_t any = bytes + dice.between(1, 24 << 20);
  // Often such that requests can fill it, or a half of it, to the last byte.
  return Bytes{dice.one_in(2) ? any : (any + kFourMiB - 1) / kFourMiB * kFourMiB};
}

}  // namespace

std::string class_of(std::uint64_t index, const std::string& wanted) {
  return wanted.empty() ? class_names()[index % class_names().size()] : wanted;
}

Stream make_stream(std::uint64_t seed, std::uint64_t index, const std::string& class_name) {
  Dice dice(seed * 1'000'003 + index);
  Stream stream{.class_name = class_of(index, class_name)};
  const Shape shape = make_shape(stream.class_name, dice);
  Writer writer(shape, dice);
  stream.content = writer.write();
  stream.setup.settings = settings_for(stream.class_name, dice);
  stream.setup.capacity = make_capacity(writer.peak(), dice);
  if (dice.one_in(6))
    stream.setup.fraction =
        dice.one_in(2) ? 0.5 : static_cast<double>(dice.between(300, 1000)) / 1000;
  stream.setup.events = shape.holds_events ? EventRule::when_told : EventRule::at_once;
  stream.setup.addresses =
      dice.pick({allocator::AddressPolicy::ascending, allocator::AddressPolicy::ascending,
                 allocator::AddressPolicy::descending, allocator::AddressPolicy::lowest});
  return stream;
}

}  // namespace headroom::oracle

#include "headroom/trace/replay.h"

#include <utility>

#include "headroom/base/error.h"

namespace headroom::trace {
namespace {

using allocator::CachingAllocator;
using allocator::Operation;

// The error of player or card, reworded in terms of the trace.
std::string complaint(const UsageError& error, const CachingAllocator& card) {
  std::string said =
      error.complaint().where == "Player::play"
          ? "expected an id that is not allocated; it can be used again after its free"
          : error.sentence();
  if (card.met_fault_of_original())
    said +=
        " (before this event, the trace triggers a bug of PyTorch that the model does not "
        "have)";
  return said;
}

// Small enough that decoding and playing a batch stays in the CPU's cache.
constexpr std::size_t kOperationsAtATime = 16384;

allocator::CardOptions card_options(const CardSetup& setup, const About& about, bool is_history) {
  allocator::CardOptions options;
  options.version = version_of(setup, about);
  options.capacity = setup.capacity;
  options.settings = settings_at_start(setup, about);
  if (options.settings.backend != allocator::Backend::native)
    throw UsageError(expectation("replay", "settings of PyTorch's own allocator",
                                 "backend:cudaMallocAsync, which leaves everything to the driver",
                                 "the same without it"));
  if (setup.fraction) options.settings.per_process_memory_fraction = *setup.fraction;
  options.events = setup.hold_events || is_history ? allocator::EventRule::when_told
                                                   : allocator::EventRule::at_once;
  options.addresses = setup.addresses;
  return options;
}

void check(const CardSetup& setup) {
  if (setup.capacity <= Bytes{0} || setup.capacity > allocator::kUnlimited)
    throw UsageError(expectation(
        "replay", "a capacity of at least one byte and at most " + to_string(allocator::kUnlimited),
        std::to_string(setup.capacity.count), "24GiB"));
  if (setup.fraction && !(*setup.fraction >= 0 && *setup.fraction <= 1))
    throw UsageError(
        expectation("replay", "a fraction from 0 to 1", std::to_string(*setup.fraction), "0.8"));
}

}  // namespace

// A trace of a PyTorch that is not modelled is played as by default.
allocator::Version version_of(const CardSetup& setup, const About& about) {
  if (setup.version) return *setup.version;
  for (const allocator::Version& version : allocator::versions())
    if (version.torch == about.torch) return version;
  return allocator::default_version();
}

allocator::Settings settings_at_start(const CardSetup& setup, const About& about) {
  const allocator::Version version = version_of(setup, about);
  if (setup.settings) return allocator::parse_settings(*setup.settings, version);
  try {
    return allocator::parse_settings(about.settings, version);
  } catch (const UsageError& error) {
    throw InputError("replay", "the trace says it began with settings '" + about.settings +
                                   "': " + error.sentence() + ", or other settings instead");
  }
}

void check_device(const OperationsOptions& options, const Noticed& noticed) {
  if (!options.device) return;
  std::string known;
  for (const std::uint16_t device : noticed.devices) {
    if (device == *options.device) return;
    known += (known.empty() ? "" : ", ") + std::to_string(device);
  }
  if (!known.empty())
    throw UsageError(expectation("replay", "a device of " + options.name,
                                 std::to_string(*options.device), known));
}

double CardReplay::operations_per_second() const {
  return played.count() > 0 ? static_cast<double>(operations) / played.count() : 0;
}

CardPlayer::CardPlayer(const CardSetup& setup, const About& about, const Operations& operations,
                       std::string name)
    : operations_(&operations),
      name_(std::move(name)),
      player_(
          CachingAllocator((check(setup), card_options(setup, about, operations.is_history())))) {
  result_.settings = setup.settings.value_or(about.settings);
  result_.version = card().version();
  result_.capacity = setup.capacity;
  result_.fraction = card().settings().per_process_memory_fraction;
}

void CardPlayer::play(const Batch& batch, Follower* follower) {
  const std::size_t count = batch.operations.size();
  const auto begin = Clock::now();
  std::size_t i = 0;
  try {
    for (; i < count; ++i) {
      const bool begins = i == 0 || batch.numbers[i] != batch.numbers[i - 1];
      const bool ends = i + 1 == count || batch.numbers[i] != batch.numbers[i + 1];
      if (follower != nullptr && begins) follower->before(batch.events[i], batch.numbers[i]);
      play_one(batch.operations[i], batch.numbers[i]);
      if (follower != nullptr && ends) follower->after(batch.events[i], card());
    }
  } catch (const UsageError& error) {
    throw InputError("replay", name_ + ", event " + std::to_string(batch.numbers[i]) + ": " +
                                   complaint(error, card()));
  }
  result_.played += Clock::now() - begin;
  result_.operations += count;
}

void CardPlayer::play_one(const Operation& operation, std::uint64_t number) {
  if (operation.kind == Operation::Kind::change_settings) {
    change_settings(operation.id);
  } else if (!player_.play(operation)) {
    if (result_.refused.empty()) result_.first_refusal = card().last_out_of_memory();
    result_.refused.push_back(number);
  }
  note_peaks(number);
}

// The player's texts are fixed at its construction; a trace's texts appear while it is read.
void CardPlayer::change_settings(std::uint32_t text) {
  allocator::Settings settings = card().settings();
  allocator::apply(settings, operations_->settings_texts().at(text), card().version());
  card().change_settings(settings);
}

// A peak changes when it grows or when the peaks are reset.
void CardPlayer::note_peaks(std::uint64_t number) {
  const allocator::Statistics& now = std::as_const(player_).card().statistics();
  const allocator::Stat &allocated = now.allocated_bytes.all, &reserved = now.reserved_bytes.all;
  const auto note = [&](Moment& moment, const allocator::Stat& stat) {
    if (stat.peak != moment.peak.count)
      moment = {number, Bytes{stat.peak}, Bytes{allocated.current}, Bytes{reserved.current}};
  };
  note(result_.reserved_peak, reserved);
  note(result_.allocated_peak, allocated);
}

const CardReplay& CardPlayer::result() {
  result_.statistics = card().statistics();
  result_.met_fault_of_original = card().met_fault_of_original();
  return result_;
}

Replay replay(Reader& trace, const ReplayOptions& options) {
  OperationsOptions kept = options.operations;
  kept.keep_events |= options.follower != nullptr;
  Operations operations(trace, kept);
  return replay(trace, operations, options);
}

Replay replay(Reader& trace, Operations& operations, const ReplayOptions& options) {
  CardPlayer player(options.setup, trace.about(), operations, options.operations.name);
  player.card().observe(options.follower);
  for (Batch batch; !options.cancel.stop_requested() && operations.next(batch, kOperationsAtATime);
       batch.clear()) {
    player.play(batch, options.follower);
    if (options.progress) options.progress(trace);
  }
  player.card().observe(nullptr);
  check_device(options.operations, operations.noticed());
  return {player.result(), player.card().snapshot(), operations.noticed()};
}

}  // namespace headroom::trace

#include "headroom/cli/core/place_of_training.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/base/time.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/forecast/closed_form.h"
#include "headroom/gpu/catalogue.h"
#include "headroom/gpu/cuda_order.h"
#include "headroom/lease/ledger.h"
#include "headroom/machine/cards_to_fill.h"
#include "headroom/machine/look.h"
#include "headroom/supervise/allowance.h"
#include "headroom/supervise/place_search.h"

namespace headroom::cli {
namespace {

// ---- How much memory ----

// Two of the allocator's segments: a small run leaves as much half empty, and the formula counts no
// such gaps.
constexpr Bytes kHalfEmpty{40LL << 20};

// std::nullopt if no card reports its size.
std::optional<Bytes> largest_when_empty(const gpu::Machine& machine) {
  std::optional<Bytes> largest;
  for (const gpu::Card& card : machine.cards)
    if (card.memory && !card.mig_enabled)
      largest = std::max(largest.value_or(Bytes{}), lease::usable_when_empty(card));
  return largest;
}

const gpu::DeviceProfile* chip_of(const gpu::Machine& machine) {
  for (const gpu::Card& card : machine.cards)
    if (const gpu::DeviceProfile* profile = machine::profile_of(card)) return profile;
  return nullptr;
}

// The memory that the run needs on a card: that of its step by formula, plus a tenth for the
// formula's errors.
Bytes memory_needed(const config::Training& training, std::int64_t batch,
                    const gpu::DeviceProfile* profile) {
  model::Settings settings = training.settings;
  settings.batch = std::min(settings.batch, batch);
  const Bytes process = forecast::forecast_of(training.model.config, settings, profile).process;
  return Bytes{process.count + process.count / 10};
}

// The memory that `min_gpu_memory_mb` asks for. Its default is for runs of unknown need, and the
// formula knows every run's.
Bytes least_asked_for(const config::Resolved& config) {
  return config.is_given("min_gpu_memory_mb") ? Bytes{config.whole("min_gpu_memory_mb") << 20}
                                              : Bytes{};
}

// The requested plan, else as much as there is for the least micro-batch. Heavier plans need less
// than the formula says, so no run asks for more than a card has. Inside an outer lease only
// min_gpu_memory_mb counts.
supervise::PlaceAnswer find_place(const config::Training& training,
                                  supervise::PlaceSearch& search) {
  const config::Resolved& config = training.config;
  const Bytes asked = least_asked_for(config);
  const gpu::Machine machine = search.fresh();
  const auto needed = [&](const char* batch) {
    return memory_needed(training, config.whole(batch), chip_of(machine));
  };
  const Bytes all = std::max(asked, needed("batch_size") + kHalfEmpty);
  const Seconds timeout(config.yes("wait_for_gpu") ? 60 * config.number("gpu_wait_timeout_minutes")
                                                   : 0);
  if (search.is_inside_lease())
    return search.find({.need = asked, .is_known = asked > Bytes{}, .timeout = timeout});
  supervise::PlaceAnswer answer = search.find({.need = all});
  if (answer.place || answer.outcome == supervise::Outcome::cancelled) return answer;
  Bytes least = needed("min_batch_size");
  if (const auto largest = largest_when_empty(machine)) least = std::min(least, *largest);
  least = std::max(asked, least);
  const bool may_shrink = config.yes("auto_batch_size") && least < all;
  answer =
      search.find({.need = may_shrink ? least : all, .is_known = !may_shrink, .timeout = timeout});
  if (!answer.place && asked > Bytes{} && asked == (may_shrink ? least : all))
    answer.sentence +=
        "; min_gpu_memory_mb=" + std::to_string(config.whole("min_gpu_memory_mb")) + " asks for it";
  return answer;
}

// ---- A place on shared cards ----

supervise::Orders orders_of(const config::Training& training, const gpu::Devices& devices) {
  const config::Resolved& config = training.config;
  supervise::Orders orders;
  orders.command = {"headroom", "train", training.job()};
  orders.devices = devices;
  orders.count = 1;
  if (!config.yes("auto_device")) orders.order = gpu::Order::index;
  orders.wait_interval = Seconds(config.number("gpu_check_interval_seconds"));
  return orders;
}

void set_environment(const std::vector<std::string>& variables) {
  for (const std::string& variable : variables) {
    const std::size_t equals = variable.find('=');
    ::setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
  }
}

std::vector<std::string> uuids_of_box(const gpu::SimulatedBox& box) {
  std::vector<std::string> uuids;
  for (const gpu::Card& card : gpu::make_simulated_source(box)->open().cards)
    uuids.push_back(to_string(card.uuid));
  return uuids;
}

// The other cards after the run's own, for the case that this one has no room left.
void show_others(const gpu::Card& own, supervise::PlaceSearch& search, RunPlace& place) {
  if (own.slice || own.simulated) return;
  std::string all = std::to_string(own.index);
  for (const gpu::Card& card : search.fresh().cards) {
    if (card.index == own.index || card.slice) continue;
    all += "," + std::to_string(card.index);
    place.uuids.push_back(to_string(card.uuid));
  }
  ::setenv("CUDA_VISIBLE_DEVICES", all.c_str(), 1);
}

// ---- A dry run ----

// The CUDA context of one process on this card.
Bytes context_on(const gpu::Card& card) {
  const gpu::DeviceProfile* const profile = machine::profile_of(card);
  return profile == nullptr ? Bytes{} : profile->context.value_or(Bytes{});
}

// A simulated box with this card alone, and nothing on it.
gpu::Devices alone_and_empty(const gpu::Card& card, const gpu::Devices& devices) {
  if (devices.kind != gpu::Devices::Kind::simulated) {
    const Bytes room = lease::usable_when_empty(card) - context_on(card);
    return gpu::parse_devices("sim:1x" + std::to_string(room.count >> 20) + "MiB");
  }
  const gpu::SimulatedCard& own = devices.box.cards.at(static_cast<std::size_t>(card.index));
  const bool is_of_catalogue = gpu::find_card(own.name) != nullptr;
  return gpu::parse_devices("sim:1x" +
                            (is_of_catalogue ? own.name : std::to_string(own.total.count)));
}

}  // namespace

std::optional<RunPlace> take_place(const config::Training& training, const gpu::Devices& devices) {
  const config::Resolved& config = training.config;
  if (devices.kind == gpu::Devices::Kind::cpu) return {};
  const bool is_private = devices.kind == gpu::Devices::Kind::simulated && devices.box.name.empty();
  if (is_private) {
    const auto number = static_cast<std::size_t>(config.number_in("device").value_or(0));
    const bool is_there = number < devices.box.cards.size();  // not in the box of a dry run
    return RunPlace{is_there ? static_cast<int>(number) : 0, uuids_of_box(devices.box)};
  }
  ProgressLine line(30);
  supervise::Listener listener;
  listener.say = [&](const std::string& text) {
    line.clear();
    print_error("headroom train: " + text + "\n");
  };
  listener.waiting = [&](const gpu::WaitProgress& progress) {
    line.show("waiting " + duration_text(progress.elapsed) + " of " +
              duration_text(progress.timeout) + ": " + progress.selection.sentence);
  };
  const supervise::Orders orders = orders_of(training, devices);
  // Static: the lease ends with the process, which becomes the engine's.
  static std::unique_ptr<supervise::PlaceSearch> search;
  search = std::make_unique<supervise::PlaceSearch>(orders, listener);
  static supervise::PlaceAnswer answer;
  answer = find_place(training, *search);
  line.clear();
  if (answer.outcome == supervise::Outcome::cancelled && !answer.place) std::exit(answer.exit_code);
  if (answer.place) {
    const gpu::Card& card = answer.place->cards.front().card;
    set_environment(supervise::environment_of(*answer.place, devices, card.slice.has_value()));
    RunPlace place{card.index, {to_string(card.uuid)}};
    if (answer.place->lease) place.lease = answer.place->lease->descriptor();
    if (card.simulated) place.uuids = uuids_of_box(devices.box);
    if (config.yes("auto_device") && !search->is_inside_lease()) show_others(card, *search, place);
    return place;
  }
  if (config.yes("allow_cpu")) {
    listener.tell(answer.sentence + "; training on the CPU instead");
    return {};
  }
  if (answer.outcome == supervise::Outcome::no_cards)
    throw UnavailableError(answer.sentence + ", or allow_cpu=true");
  const bool may_wait = answer.waiting_helps && !config.yes("wait_for_gpu");
  throw BusyError(answer.sentence + (may_wait ? "; try wait_for_gpu=true" : ""));
}

DryPlace dry_place(const gpu::Devices& devices, const config::Resolved& config) {
  const bool is_simulated = devices.kind == gpu::Devices::Kind::simulated;
  if (devices.kind == gpu::Devices::Kind::cpu || (is_simulated && devices.box.name.empty()))
    return {devices, {}};
  const machine::Look look = machine::look_at_machine(devices.text.empty() ? "auto" : devices.text);
  const gpu::Machine machine =
      gpu::narrowed(look.machine, devices, gpu::CudaEnvironment::current());
  auto outer = supervise::Allowance::find(devices, {});
  const gpu::Card* best = nullptr;
  Bytes usable;
  for (const gpu::Card& card : machine.cards) {
    if (!card.memory || card.mig_enabled) continue;
    const Bytes now =
        outer ? outer->on(card.uuid, {}).most : gpu::usable_now(card).value_or(Bytes{});
    if (best != nullptr && now <= usable) continue;
    best = &card;
    usable = now;
  }
  if (best != nullptr) {
    gpu::Devices alone = alone_and_empty(*best, devices);
    const Bytes context = lease::usable_when_empty(*best) - gpu::room_of(alone.box.cards.front());
    return {std::move(alone), std::max(Bytes{}, usable - context)};
  }
  if (config.yes("allow_cpu")) return {gpu::parse_devices("cpu"), {}};
  throw UnavailableError(
      expectation("--gpus", "a card", "none", "--gpus sim:1x24GiB, or allow_cpu=true"));
}

}  // namespace headroom::cli

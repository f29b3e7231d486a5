#include "headroom/cli/core/place_of_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
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
#include "headroom/model/shapes.h"
#include "headroom/supervise/allowance.h"
#include "headroom/supervise/place_search.h"

namespace headroom::cli {
namespace {

// ---- How much memory ----

// Two of the allocator's segments: a small run leaves as much half empty, and the formula counts no
// such gaps.
constexpr Bytes kHalfEmpty{40LL << 20};

// Of the cards that a run takes, the largest of the machine, the smallest. std::nullopt if too few
// report their size.
std::optional<Bytes> least_when_empty(const gpu::Machine& machine, int count) {
  std::vector<Bytes> sizes;
  for (const gpu::Card& card : machine.cards)
    if (card.memory && !card.mig_enabled) sizes.push_back(lease::usable_when_empty(card));
  if (sizes.size() < static_cast<std::size_t>(count)) return {};
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  return sizes[static_cast<std::size_t>(count) - 1];
}

const gpu::DeviceProfile* chip_of(const gpu::Machine& machine) {
  for (const gpu::Card& card : machine.cards)
    if (const gpu::DeviceProfile* profile = machine::profile_of(card)) return profile;
  return nullptr;
}

// The share of the model on the card that has the most layers; embeddings and head count as one
// each.
double largest_share(const config::Training& training) {
  const config::Sharing& sharing = training.sharing;
  if (sharing.stages == 1) return 1;
  const auto layers = static_cast<double>(model::layer_count(training.model.config));
  const double most = sharing.split.empty() ? std::ceil(layers / sharing.stages)
                                            : static_cast<double>(std::ranges::max(sharing.split));
  return (most + 1) / (layers + 2);
}

// Parts of a batch whose activations wait on the first stage for their backward pass.
std::int64_t parts_that_wait(const config::Training& training, std::int64_t part) {
  const config::Sharing& sharing = training.sharing;
  if (sharing.stages == 1) return 1;
  const std::int64_t rows = training.config.whole("batch_size") *
                            training.config.whole("gradient_accumulation_steps") / sharing.replicas,
                     parts = std::max<std::int64_t>(1, rows / part);
  return training.config.text("pipeline") == "gpipe"
             ? parts
             : std::min<std::int64_t>(parts, sharing.stages);
}

// The memory that the run needs on a card: that of its step by formula, plus a tenth for the
// formula's errors. A stage has its share of the layers.
Bytes memory_needed(const config::Training& training, std::int64_t rows,
                    const gpu::DeviceProfile* profile) {
  model::Settings settings = training.settings;
  settings.batch = std::min(training.micro_batch(), rows);
  const forecast::Forecast whole = forecast::forecast_of(training.model.config, settings, profile);
  const double share = largest_share(training);
  trace::Parts of_card = whole.at_peak;
  const auto scale = [](Bytes& bytes, double by) {
    bytes = Bytes{std::llround(by * static_cast<double>(bytes.count))};
  };
  for (Bytes* const part :
       {&of_card.parameters, &of_card.buffers, &of_card.gradients, &of_card.optimizer})
    scale(*part, share);
  scale(of_card.activations,
        share * static_cast<double>(parts_that_wait(training, settings.batch)));
  const Bytes context = whole.process - whole.reserved;
  const Bytes process = forecast::reserved_for(of_card) + context;
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
  const auto needed = [&](const char* rows) {
    return memory_needed(training, config.whole(rows), chip_of(machine));
  };
  const Bytes all = std::max(asked, needed("batch_size") + kHalfEmpty);
  const Seconds timeout(config.yes("wait_for_gpu") ? 60 * config.number("gpu_wait_timeout_minutes")
                                                   : 0);
  if (search.is_inside_lease())
    return search.find({.need = asked, .is_known = asked > Bytes{}, .timeout = timeout});
  supervise::PlaceAnswer answer = search.find({.need = all});
  if (answer.place || answer.outcome == supervise::Outcome::cancelled) return answer;
  Bytes least = needed("min_batch_size");
  if (const auto most = least_when_empty(machine, training.sharing.cards()))
    least = std::min(least, *most);
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
  orders.count = training.sharing.cards();
  orders.whole_cards = *orders.count > 1 && devices.kind != gpu::Devices::Kind::listed;
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

// The card as a simulated box has it, with nothing on it.
std::string empty_one(const gpu::Card& card, const gpu::Devices& devices) {
  if (devices.kind != gpu::Devices::Kind::simulated) {
    const Bytes room = lease::usable_when_empty(card) - context_on(card);
    return "1x" + std::to_string(room.count >> 20) + "MiB";
  }
  const gpu::SimulatedCard& own = devices.box.cards.at(static_cast<std::size_t>(card.index));
  const bool is_of_catalogue = gpu::find_card(own.name) != nullptr;
  return "1x" + (is_of_catalogue ? own.name : std::to_string(own.total.count));
}

// What a run on several cards, or its folder, can be given for one.
constexpr const char* kOnOne = "replicas=1 stages=1";

// "4 cards for replicas=2 stages=2"
std::string cards_wanted(const config::Sharing& sharing) {
  return fmt::format("{} for replicas={} stages={}", counted(sharing.cards(), "card"),
                     sharing.replicas, sharing.stages);
}

// Throws UsageError for a number in `cards` that no card has.
void check_numbers(const config::Sharing& sharing, int there) {
  for (const int number : sharing.on)
    if (number >= there)
      throw UsageError(expectation("cards",
                                   "numbers below the " + counted(there, "card") + " of --gpus",
                                   std::to_string(number)));
}

// The cards that `cards` names, in its order.
gpu::Devices named_cards(gpu::Devices devices, const config::Sharing& sharing) {
  if (sharing.on.empty() || devices.kind == gpu::Devices::Kind::cpu) return devices;
  std::vector<std::string> names;
  for (const int number : sharing.on) {
    const auto place = static_cast<std::size_t>(number);
    const bool is_listed = devices.kind == gpu::Devices::Kind::listed;
    if (is_listed) check_numbers(sharing, static_cast<int>(devices.listed.size()));
    names.push_back(is_listed ? devices.listed[place] : std::to_string(number));
  }
  if (devices.kind != gpu::Devices::Kind::simulated) return gpu::parse_devices(join(names, ","));
  check_numbers(sharing, static_cast<int>(devices.box.cards.size()));
  devices.listed = names;
  return devices;
}

// As --gpus lists them, or a box has them: `split` names the layers of each.
void put_in_order(std::vector<gpu::Selection::Pick>& picked, const gpu::Machine& machine) {
  const auto place_of = [&](const gpu::Card& card) {
    return std::find_if(machine.cards.begin(), machine.cards.end(),
                        [&](const gpu::Card& one) { return one.uuid == card.uuid; }) -
           machine.cards.begin();
  };
  std::stable_sort(picked.begin(), picked.end(), [&](const auto& one, const auto& other) {
    return place_of(one.card) < place_of(other.card);
  });
}

// The lease ends with the process, which becomes the engine's, unless it is given back.
struct Held {
  std::unique_ptr<supervise::PlaceSearch> search;
  supervise::PlaceAnswer answer;
};
Held& held() {
  static Held one;
  return one;
}

}  // namespace

void give_place_back() {
  held().answer = {};
  held().search.reset();
}

std::optional<RunPlace> take_place(const config::Training& training, const gpu::Devices& asked) {
  const config::Resolved& config = training.config;
  const gpu::Devices devices = named_cards(asked, training.sharing);
  const int count = training.sharing.cards();
  const auto too_few = [&](const std::string& received) {
    throw UsageError(expectation("--gpus", cards_wanted(training.sharing), received,
                                 fmt::format("--gpus sim:{}x24GiB, or {}", count, kOnOne)));
  };
  if (devices.kind == gpu::Devices::Kind::cpu) {
    if (count > 1) too_few("the CPU");
    return {};
  }
  const bool is_private = devices.kind == gpu::Devices::Kind::simulated && devices.box.name.empty();
  if (is_private) {
    const auto there = static_cast<int>(devices.box.cards.size());
    if (count > there) too_few(std::to_string(there));
    RunPlace place{{}, uuids_of_box(devices.box)};
    const auto number = static_cast<int>(config.number_in("device").value_or(0));
    const int first = number < there ? number : 0;  // the box of a dry run has fewer
    for (int i = 0; i < count; ++i) place.cards.push_back(first + i);
    if (!training.sharing.on.empty()) place.cards = training.sharing.on;
    return place;
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
  auto& [search, answer] = held();
  search = std::make_unique<supervise::PlaceSearch>(orders, listener);
  answer = find_place(training, *search);
  line.clear();
  if (answer.outcome == supervise::Outcome::cancelled && !answer.place) std::exit(answer.exit_code);
  if (answer.place) {
    std::vector<gpu::Selection::Pick>& picked = answer.place->cards;
    if (devices.kind != gpu::Devices::Kind::automatic) put_in_order(picked, search->fresh());
    for (const auto& [each, usable] : picked)
      if (count > 1 && each.slice)
        throw UnavailableError(expectation("--gpus", cards_wanted(training.sharing),
                                           "slices of cards, of which CUDA gives a process one",
                                           "--gpus with the numbers of whole cards"));
    const gpu::Card& card = picked.front().card;
    set_environment(supervise::environment_of(*answer.place, devices, card.slice.has_value()));
    RunPlace place;
    for (const auto& [each, usable] : picked) {
      place.cards.push_back(card.simulated ? each.index : static_cast<int>(place.cards.size()));
      place.uuids.push_back(to_string(each.uuid));
    }
    if (answer.place->lease) place.lease = answer.place->lease->descriptor();
    if (card.simulated) place.uuids = uuids_of_box(devices.box);
    const bool may_move = count == 1 && config.yes("auto_device") && !search->is_inside_lease();
    if (may_move) show_others(card, *search, place);
    return place;
  }
  if (config.yes("allow_cpu") && count == 1) {
    listener.tell(answer.sentence + "; training on the CPU instead");
    return {};
  }
  if (answer.outcome == supervise::Outcome::no_cards)
    throw UnavailableError(answer.sentence + (count == 1 ? ", or allow_cpu=true" : ""));
  const gpu::Machine machine = search->fresh();
  const auto there = static_cast<int>(machine.cards.size());
  if (count > 1 && !machine.silent && there < count)
    throw UnavailableError(
        expectation("--gpus", cards_wanted(training.sharing), std::to_string(there), kOnOne));
  const bool may_wait = answer.waiting_helps && !config.yes("wait_for_gpu");
  throw BusyError(answer.sentence + (may_wait ? "; try wait_for_gpu=true" : ""));
}

DryPlace dry_place(const gpu::Devices& asked, const config::Training& training) {
  const gpu::Devices devices = named_cards(asked, training.sharing);
  const bool is_simulated = devices.kind == gpu::Devices::Kind::simulated;
  if (devices.kind == gpu::Devices::Kind::cpu || (is_simulated && devices.box.name.empty()))
    return {devices, {}};
  const machine::Look look = machine::look_at_machine(devices.text.empty() ? "auto" : devices.text);
  const gpu::Machine machine =
      gpu::narrowed(look.machine, devices, gpu::CudaEnvironment::current());
  auto outer = supervise::Allowance::find(devices, {});
  std::vector<std::pair<Bytes, const gpu::Card*>> cards;
  for (const gpu::Card& card : machine.cards)
    if (card.memory && !card.mig_enabled && !(card.slice && training.sharing.cards() > 1))
      cards.emplace_back(
          outer ? outer->on(card.uuid, {}).most : gpu::usable_now(card).value_or(Bytes{}), &card);
  std::stable_sort(cards.begin(), cards.end(),
                   [](const auto& one, const auto& other) { return one.first > other.first; });
  const auto count = static_cast<std::size_t>(training.sharing.cards());
  if (cards.size() >= count) {
    cards.resize(count);
    if (devices.kind != gpu::Devices::Kind::automatic)  // in the order of the machine
      std::sort(cards.begin(), cards.end(),
                [](const auto& one, const auto& other) { return one.second < other.second; });
    std::vector<std::string> boxes;
    for (std::size_t i = 0; i < count; ++i) boxes.push_back(empty_one(*cards[i].second, devices));
    DryPlace place{gpu::parse_devices("sim:" + join(boxes, ",")), {}};
    for (std::size_t i = 0; i < count; ++i) {
      const auto& [usable, card] = cards[i];
      const Bytes context =
          lease::usable_when_empty(*card) - gpu::room_of(place.devices.box.cards[i]);
      place.usable.push_back(std::max(Bytes{}, usable - context));
    }
    return place;
  }
  if (training.config.yes("allow_cpu") && count == 1) return {gpu::parse_devices("cpu"), {}};
  throw UnavailableError(expectation(
      "--gpus", count == 1 ? "a card" : cards_wanted(training.sharing),
      cards.empty() ? "none" : std::to_string(cards.size()),
      fmt::format("--gpus sim:{}x24GiB{}", count, count == 1 ? ", or allow_cpu=true" : "")));
}

}  // namespace headroom::cli

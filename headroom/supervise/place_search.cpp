#include "headroom/supervise/place_search.h"

#include <algorithm>

#include "headroom/base/text.h"
#include "headroom/gpu/recent_ends.h"
#include "headroom/lease/site.h"
#include "headroom/lease/steady_source.h"

namespace headroom::supervise {
namespace {

constexpr Seconds kMemoryIsBackWithin{10.0};

// Memory of living processes; the job's own have all ended by now.
Bytes held_by_others(const gpu::Card& card) {
  Bytes held;
  if (!card.processes) return held;
  for (const gpu::GpuProcess& process : *card.processes)
    if (process.start_ticks != 0 && process.used) held += *process.used;
  return held;
}

// Memory that others took meanwhile does not come back.
bool memory_is_back(const Place& place, const gpu::Machine& machine) {
  return std::all_of(place.cards.begin(), place.cards.end(), [&](const auto& pick) {
    const Bytes needed = pick.usable + held_by_others(pick.card);
    for (const gpu::Card& card : machine.cards)
      if (card.uuid == pick.card.uuid && card.memory)
        return card.memory->free + held_by_others(card) >= needed;
    return false;
  });
}

}  // namespace

PlaceSearch::PlaceSearch(const Orders& orders, const Listener& listener)
    : orders_(orders), listener_(listener) {
  if (orders.devices.kind == gpu::Devices::Kind::cpu) return;
  directory_ = lease::Directory::open();
  listener.tell_all(directory_->warnings());
  const lease::Site site = lease::Site::read();
  if (!site.trouble().empty())
    listener.tell(site.file().string() + " sets no limits: " + site.trouble());
  sampler_ = std::make_unique<gpu::Sampler>(lease::steady(gpu::make_source(orders.devices)));
  find_outer();
}

void PlaceSearch::find_outer() {
  const auto named = lease::named_outer_lease();
  if (!named) return;
  outer_ = lease::OuterLease::find(directory_->contents());
  if (!outer_)
    listener_.tell("HEADROOM_LEASE names lease " + *named +
                   ", which has ended or belongs to another job; making a new reservation");
  const gpu::Machine machine = outer_ ? sampler_->fresh() : gpu::Machine{};
  const bool of_others = !machine.silent && !machine.cards.empty() && !outer_->concerns(machine);
  if (of_others) outer_.reset();
  if (outer_) listener_.tell("using lease " + *named + ", in which it was started");
}

gpu::Machine PlaceSearch::narrowed(gpu::Machine machine) const {
  gpu::Machine own = gpu::narrowed(std::move(machine), orders_.devices, environment_);
  if (orders_.whole_cards)
    std::erase_if(own.cards, [](const gpu::Card& card) { return card.slice.has_value(); });
  return own;
}

gpu::Machine PlaceSearch::known() const {
  return on_cards() ? sampler_->snapshot() : gpu::Machine{};
}

gpu::Machine PlaceSearch::fresh() {
  return on_cards() ? narrowed(sampler_->fresh()) : gpu::Machine{};
}

gpu::WaitOptions PlaceSearch::wait_options(const PlaceWish& wish,
                                           const std::stop_token& cancel) const {
  gpu::WaitOptions wait;
  wait.timeout = wish.timeout;
  wait.interval = orders_.wait_interval;
  wait.progress = listener_.waiting;
  wait.cancel = cancel;
  wait.narrow = [this](gpu::Machine machine) { return narrowed(std::move(machine)); };
  wait.recent_ends = [](const gpu::Machine& machine) { return gpu::note_processes(machine); };
  return wait;
}

lease::Acquired PlaceSearch::acquire(const PlaceWish& wish, const std::stop_token& cancel) {
  const gpu::DeviceRequest request{
      .need = wish.need, .count = orders_.count.value_or(1), .order = orders_.order};
  return lease::acquire(*directory_, *sampler_, request, wait_options(wish, cancel),
                        join(orders_.command, " "),
                        wish.is_known ? lease::Amount::needed : lease::Amount::all_usable);
}

// The outer lease has the memory already: this waits only for the memory that the outer job itself
// uses now.
lease::Acquired PlaceSearch::within_outer(const PlaceWish& wish, const std::stop_token& cancel) {
  const gpu::Machine machine = fresh();
  const gpu::DeviceRequest request{
      .need = wish.is_known ? wish.need : Bytes{0},
      .count = orders_.count.value_or(std::max(1, outer_->cards_of(machine))),
      .order = orders_.order};
  outer_->require({.need = orders_.need.value_or(Bytes{0}), .count = request.count}, machine);
  gpu::WaitOptions wait = wait_options(wish, cancel);
  wait.narrow = [this](gpu::Machine seen) {
    return outer_->within(narrowed(std::move(seen)), directory_->contents());
  };
  return {.lease = {}, .wait = gpu::wait_for_gpu(*sampler_, request, wait)};
}

PlaceAnswer PlaceSearch::find(const PlaceWish& wish) {
  PlaceAnswer answer;
  if (!on_cards()) {
    answer.place.emplace();
    return answer;
  }
  const Interrupt interrupt;
  lease::Acquired acquired =
      outer_ ? within_outer(wish, interrupt.token()) : acquire(wish, interrupt.token());
  answer.waited = acquired.wait.waited;
  if (interrupt.happened()) {
    answer.outcome = Outcome::cancelled;
    answer.exit_code = interrupt.exit_code();
  } else if (acquired.lease || (outer_ && !acquired.wait.selection.picked.empty())) {
    answer.place = Place{std::move(acquired.lease), std::move(acquired.wait.selection.picked)};
  } else {
    explain(acquired, answer);
  }
  return answer;
}

void PlaceSearch::explain(const lease::Acquired& acquired, PlaceAnswer& answer) const {
  answer.sentence = acquired.wait.selection.sentence;
  answer.waiting_helps = !acquired.wait.selection.cannot_be_met;
  const gpu::Machine whole = sampler_->snapshot();
  const gpu::Machine machine = narrowed(whole);
  if (!machine.cards.empty() || machine.silent) return;
  answer.outcome = Outcome::no_cards;
  const std::string hidden = whole.cards.empty() ? "" : cuda_view(whole, environment_).why_empty;
  if (!hidden.empty()) answer.sentence += "; " + hidden;
  answer.sentence += "; try --gpus cpu to run it without a card";
}

std::optional<int> PlaceSearch::wait_until_memory_is_back(const Place& place) {
  if (!on_cards()) return {};
  const Interrupt interrupt;
  const auto begin = Clock::now();
  while (!memory_is_back(place, sampler_->fresh()) && Clock::now() - begin < kMemoryIsBackWithin)
    if (!sleep_for(Seconds(0.1), interrupt.token())) break;
  return interrupt.happened() ? std::optional(interrupt.exit_code()) : std::nullopt;
}

}  // namespace headroom::supervise

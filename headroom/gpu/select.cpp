#include "headroom/gpu/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/gpu/holders.h"

namespace headroom::gpu {
namespace {

using namespace headroom::literals;

struct Candidate {
  const Card* card;
  Bytes usable;
};

// MIG slices are picked in place of their card.
bool can_be_taken(const Card& card) {
  return !card.mig_enabled;
}

bool is_better(const Candidate& a, const Candidate& b, Order order) {
  if (order == Order::least_loaded) {
    // A card that does not report its load counts as loaded.
    const int load_a = a.card->utilization.value_or(101),
              load_b = b.card->utilization.value_or(101);
    if (load_a != load_b) return load_a < load_b;
  }
  if (order != Order::index && a.usable != b.usable) return a.usable > b.usable;
  return a.card->index < b.card->index;
}

std::vector<Holder> holders_of(const Card& card) {
  std::vector<Holder> holders;
  for (const GpuProcess& process : card.processes.value_or(std::vector<GpuProcess>{}))
    holders.push_back({card.uuid, process});
  std::stable_sort(holders.begin(), holders.end(), [](const Holder& a, const Holder& b) {
    return a.process.used.value_or(Bytes{0}) > b.process.used.value_or(Bytes{0});
  });
  return holders;
}

std::string whole_seconds(Seconds age) {
  return std::to_string(std::lround(age.count())) + " s";
}

// "data is 3 s old", by the card with the newest data.
std::string staleness(const Machine& machine, Clock::time_point now) {
  std::optional<Seconds> youngest;
  for (const Card& card : machine.cards)
    if (const auto a = age(card, now); a && (!youngest || *a < *youngest)) youngest = a;
  return fmt::format(
      "data is {} old: the driver does not answer, and decisions use no data older than {}",
      whole_seconds(youngest.value_or(now - machine.asked)), whole_seconds(kFreshFor));
}

bool could_ever_give(const Card& card, Bytes need) {
  if (!card.memory) return true;
  return need <=
         card.memory->total - card.memory->reserved.value_or(Bytes{0}) - card.withheld.always;
}

// ": 64.0 MiB of each are always kept free" if a card would be large enough with them.
std::string about_withheld(const Machine& machine, Bytes need) {
  for (const Card& card : machine.cards)
    if (can_be_taken(card) && !could_ever_give(card, need) &&
        could_ever_give(card, need - card.withheld.always))
      return fmt::format(": {} of each are always kept free", to_string(card.withheld.always));
  return "";
}

std::string why_it_cannot_be_met(int cards, int large_enough, int count) {
  if (cards < count) return "there are only " + counted(cards, "card");
  if (large_enough == 0) return "no card has that much even when empty";
  return fmt::format("only {} would have that much when empty", counted(large_enough, "card"));
}

std::string names_of(const std::vector<Holder>& holders) {
  constexpr std::size_t kMostNamed = 3;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(kMostNamed, holders.size()); ++i)
    names.push_back(describe(holders[i].process));
  if (holders.size() > kMostNamed)
    names.push_back(std::to_string(holders.size() - kMostNamed) + " more");
  return join(names, ", ");
}

std::string shortage(const DeviceRequest& request, const Candidate& best, std::size_t found,
                     const Selection& selection) {
  std::string text = "need " + to_string(request.need);
  if (request.count > 1)
    text += fmt::format(" on {}, {} found", counted(request.count, "card"), found);
  text += fmt::format("; best is {} with {} usable, short by {}", label(*best.card),
                      to_string(best.usable), to_string(*selection.shortfall));
  if (!selection.holders.empty()) text += "; held by " + names_of(selection.holders);
  // A smaller amount is the contexts of the listed processes.
  if (selection.unlisted && *selection.unlisted >= 1_GiB)
    text += fmt::format("{} {} by no listed process (headroom clean explains)",
                        selection.holders.empty() ? "; held:" : ", and",
                        to_string(*selection.unlisted));
  return text;
}

}  // namespace

Order parse_order(std::string_view text) {
  if (text == "most-free") return Order::most_free;
  if (text == "least-loaded") return Order::least_loaded;
  if (text == "index") return Order::index;
  const auto close = nearest(text, {"most-free", "least-loaded", "index"});
  throw UsageError(
      expectation("--order", "most-free, least-loaded or index", text, close.value_or("")));
}

std::string describe(const GpuProcess& process) {
  std::string text;
  if (process.pid) {
    text = fmt::format("PID {} {}", *process.pid, process.user.value_or("?"));
  } else {
    text = "a process of another namespace";
  }
  if (process.used) text += " " + to_string(*process.used);
  if (process.command) {
    constexpr std::size_t kWidth = 40;
    const bool cut = process.command->size() > kWidth;
    text += fmt::format(" ({}{})", process.command->substr(0, kWidth), cut ? "..." : "");
  }
  return text;
}

Selection find_best_device(const Machine& machine, const DeviceRequest& request,
                           const Usable& usable, Clock::time_point now) {
  Selection selection;
  std::vector<Candidate> fit, rest;
  std::vector<std::string> silent_cards;
  bool any_card = false;
  int large_enough = 0;  // cards that could do if they were empty; unknown ones count
  int cards = 0;
  for (const Card& card : machine.cards) {
    if (!can_be_taken(card)) continue;
    any_card = true;
    ++cards;
    if (could_ever_give(card, request.need)) ++large_enough;
    if (!is_fresh(card, now) || card.stuck) {
      silent_cards.push_back(label(card));
      continue;
    }
    if (const auto room = usable(card))
      (*room >= request.need ? fit : rest).push_back({&card, *room});
  }
  const auto better = [&](const Candidate& a, const Candidate& b) {
    return is_better(a, b, request.order);
  };
  std::stable_sort(fit.begin(), fit.end(), better);
  if (fit.size() >= static_cast<std::size_t>(request.count)) {
    for (int i = 0; i < request.count; ++i)
      selection.picked.push_back(
          {*fit[static_cast<std::size_t>(i)].card, fit[static_cast<std::size_t>(i)].usable});
    return selection;
  }

  const auto best = std::max_element(
      rest.begin(), rest.end(), [](const auto& a, const auto& b) { return a.usable < b.usable; });
  if (machine.silent || (any_card && fit.empty() && rest.empty() && !silent_cards.empty())) {
    selection.stale = true;
    selection.sentence = staleness(machine, now);
  } else if (!any_card) {
    selection.sentence =
        machine.why_no_driver.empty() ? "no GPU to choose from" : machine.why_no_driver;
  } else if (best != rest.end()) {
    selection.shortfall = request.need - best->usable;
    selection.holders = holders_of(*best->card);
    selection.unlisted = unlisted_memory(*best->card);
    selection.sentence = shortage(request, *best, fit.size(), selection);
  } else {
    selection.sentence = fmt::format("need {} with {}, found {}", counted(request.count, "card"),
                                     to_string(request.need), fit.size());
  }
  if (any_card && !selection.stale && large_enough < request.count) {
    selection.cannot_be_met = true;
    selection.sentence += "; " + why_it_cannot_be_met(cards, large_enough, request.count) +
                          about_withheld(machine, request.need);
  }
  if (!selection.stale && !silent_cards.empty())
    selection.sentence += "; the driver does not answer for " + join(silent_cards, ", ");
  // Stale data does not prove that the cards are full, so it does not justify the CPU either.
  if (request.allow_cpu && !selection.stale) {
    selection.cpu = true;
    selection.sentence = "taking the CPU: " + selection.sentence;
  }
  return selection;
}

}  // namespace headroom::gpu

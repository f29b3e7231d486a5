#include "headroom/gpu/cuda_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "headroom/base/file.h"
#include "headroom/base/text.h"
#include "headroom/gpu/catalogue.h"

namespace headroom::gpu {
namespace {

// The position of the first slice of a card, or the end.
std::size_t first_slice(const Machine& machine, const Card& card) {
  const auto found = std::find_if(machine.cards.begin(), machine.cards.end(), [&](const Card& c) {
    return c.slice && c.slice->parent == card.uuid;
  });
  return static_cast<std::size_t>(found - machine.cards.begin());
}

// The card is in MIG mode but has no slices: CUDA can open nothing on it.
bool is_without_slices(const Machine& machine, const Card& card) {
  return card.mig_enabled && first_slice(machine, card) == machine.cards.size();
}

// Positions of the devices that CUDA can open, in the driver's order: whole cards, not slices. A
// card with slices counts as one device, its first slice.
std::vector<std::size_t> whole_cards(const Machine& machine) {
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < machine.cards.size(); ++i)
    if (!machine.cards[i].slice && !is_without_slices(machine, machine.cards[i]))
      positions.push_back(i);
  return positions;
}

// Larger is faster. Cards of the same name compare equal, so a stable sort keeps their PCI order.
auto speed(const Card& card) {
  const CatalogueCard* known = find_card(card.name);
  return std::tuple(known != nullptr ? known->rates.fp32.value_or(0) : 0.0,
                    card.capability.value_or(std::array<int, 2>{}));
}

std::vector<std::size_t> in_cuda_order(const Machine& machine, const CudaEnvironment& environment) {
  std::vector<std::size_t> order = whole_cards(machine);
  if (environment.device_order == "PCI_BUS_ID") return order;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return speed(machine.cards[a]) > speed(machine.cards[b]);
  });
  return order;
}

bool all_of_one_name(const Machine& machine) {
  return std::all_of(machine.cards.begin(), machine.cards.end(), [&](const Card& card) {
    return card.slice || card.name == machine.cards.front().name;
  });
}

// The number at the start of a text, without sign and leading zeros: "+01gpu" is 1; "gpu", "", "-1"
// and a lone sign give nothing. For these PyTorch returns -1, and for a lone sign it throws; both
// end the list here. The number stays text, because PyTorch detects repeated numbers of any length.
std::optional<std::string> leading_number(std::string_view text) {
  const std::size_t sign = !text.empty() && (text[0] == '+' || text[0] == '-') ? 1 : 0;
  const std::size_t end = std::min(text.find_first_not_of("0123456789", sign), text.size());
  if (end == sign) return {};
  const std::size_t first = std::min(text.find_first_not_of('0', sign), end - 1);
  std::string number(text.substr(first, end - first));
  if (text[0] == '-' && number != "0") return {};
  return number;
}

struct Choice {
  std::vector<std::size_t> cards;
  std::string stopped;  // why the list ended early, or "" if it did not
};

// Two passes, like PyTorch: a number repeated before the end of the list empties it, even after a
// number that no card has.
Choice choose_by_number(const std::string& list, const std::vector<std::size_t>& order) {
  Choice choice;
  std::vector<std::string> numbers;
  for (const std::string_view element : split(list, ',')) {
    const auto number = leading_number(trim(element));
    const std::string named = fmt::format("'{}'", element);
    if (number && std::find(numbers.begin(), numbers.end(), *number) != numbers.end())
      return {.cards = {}, .stopped = named + " is listed twice, which hides every card"};
    if (!number) {
      choice.stopped = named + " is no GPU: CUDA ignores it and every entry after it";
      break;
    }
    numbers.push_back(*number);
  }
  for (const std::string& number : numbers) {
    const auto n = to_integer(number);
    if (!n || *n >= static_cast<long long>(order.size())) {
      choice.stopped = fmt::format("there is no card {}, which ends the list", number);
      break;
    }
    choice.cards.push_back(order[static_cast<std::size_t>(*n)]);
  }
  return choice;
}

Choice choose_by_uuid(const std::string& list, const std::string& prefix, const Machine& machine) {
  Choice choice;
  std::vector<std::string_view> elements;
  for (const std::string_view element : split(list, ',')) {
    if (std::find(elements.begin(), elements.end(), element) != elements.end())
      return {.cards = {}, .stopped = "an entry is listed twice, which hides every card"};
    if (!element.starts_with(prefix)) {
      choice.stopped =
          fmt::format("'{}' does not begin with {}, which ends the list", element, prefix);
      break;
    }
    elements.push_back(element);
  }
  const bool wants_slices = prefix == "MIG-";
  for (const std::string_view element : elements) {
    std::vector<std::size_t> matches;
    for (std::size_t i = 0; i < machine.cards.size(); ++i)
      if (machine.cards[i].slice.has_value() == wants_slices &&
          to_string(machine.cards[i].uuid).starts_with(element))
        matches.push_back(i);
    if (matches.size() != 1) {
      choice.stopped =
          fmt::format("{} '{}', which ends the list",
                      matches.empty() ? "no card is called" : "several cards are", element);
      return choice;
    }
    if (std::find(choice.cards.begin(), choice.cards.end(), matches[0]) != choice.cards.end())
      return {.cards = {}, .stopped = "one card is listed twice, which hides every card"};
    choice.cards.push_back(matches[0]);
  }
  return choice;
}

Choice choose(const Machine& machine, const CudaEnvironment& environment,
              const std::vector<std::size_t>& order) {
  if (!environment.visible_devices) return {.cards = order, .stopped = {}};
  const std::string& list = *environment.visible_devices;
  if (list.empty()) return {.cards = {}, .stopped = "it is empty, which hides every card"};
  for (const char* prefix : {"GPU-", "MIG-"})
    if (list.starts_with(prefix)) return choose_by_uuid(list, prefix, machine);
  return choose_by_number(list, order);
}

// CUDA never opens a card in MIG mode itself: it opens the card's first slice, and only one slice
// per process.
void replace_by_slices(CudaView& view, const Machine& machine) {
  std::erase_if(view.cards,
                [&](std::size_t p) { return is_without_slices(machine, machine.cards[p]); });
  for (std::size_t& position : view.cards)
    if (machine.cards[position].mig_enabled)
      position = first_slice(machine, machine.cards[position]);
  const auto is_slice = [&](std::size_t p) { return machine.cards[p].slice.has_value(); };
  const auto first = std::find_if(view.cards.begin(), view.cards.end(), is_slice);
  if (first == view.cards.end() || view.cards.size() == 1) return;
  view.warnings.push_back(
      fmt::format("CUDA gives a process one MIG slice and no other card: of {} only {} is visible",
                  view.cards.size(), label(machine.cards[*first])));
  view.cards = {*first};
}

// Warns if CUDA's numbers differ from the driver's. Lists of UUIDs, and numbers that agree in both
// orders, need no warning.
void warn_of_other_numbers(CudaView& view, const Machine& machine,
                           const std::vector<std::size_t>& order,
                           const CudaEnvironment& environment) {
  const std::string list = environment.visible_devices.value_or("");
  if (list.starts_with("GPU-") || list.starts_with("MIG-")) return;
  for (std::size_t n = 0; n < order.size(); ++n) {
    const Card& card = machine.cards[order[n]];
    if (card.index == static_cast<int>(n)) continue;
    const std::string where = environment.visible_devices
                                  ? "in CUDA_VISIBLE_DEVICES " + std::to_string(n)
                                  : "cuda:" + std::to_string(n);
    view.warnings.push_back(
        fmt::format("nvidia-smi and CUDA count differently here: {} is GPU {} ({})", where,
                    card.index, card.name));
    return;
  }
}

}  // namespace

CudaEnvironment CudaEnvironment::current() {
  return {.device_order = headroom::environment("CUDA_DEVICE_ORDER"),
          .visible_devices = headroom::environment("CUDA_VISIBLE_DEVICES")};
}

CudaView cuda_view(const Machine& machine, const CudaEnvironment& environment) {
  CudaView view;
  const auto order = in_cuda_order(machine, environment);
  if (order.empty() && !machine.cards.empty())
    view.why_empty = "every card is in MIG mode and has no slices (nvidia-smi mig -cgi makes some)";
  if (order.empty()) return view;
  const Choice choice = choose(machine, environment, order);
  view.cards = choice.cards;
  view.order_is_estimated = environment.device_order != "PCI_BUS_ID" && !all_of_one_name(machine);
  const auto& asked_order = environment.device_order;
  if (asked_order && *asked_order != "PCI_BUS_ID" && *asked_order != "FASTEST_FIRST")
    view.warnings.push_back(fmt::format(
        "CUDA_DEVICE_ORDER='{}' is neither PCI_BUS_ID nor FASTEST_FIRST: CUDA takes FASTEST_FIRST",
        *asked_order));
  if (!choice.stopped.empty()) {
    const std::string sentence = fmt::format(
        "CUDA_VISIBLE_DEVICES='{}': {}", environment.visible_devices.value_or(""), choice.stopped);
    (view.cards.empty() ? view.why_empty : view.warnings.emplace_back()) = sentence;
  }
  replace_by_slices(view, machine);
  warn_of_other_numbers(view, machine, order, environment);
  return view;
}

std::optional<int> cuda_number(const CudaView& view, std::size_t position) {
  const auto found = std::find(view.cards.begin(), view.cards.end(), position);
  if (found == view.cards.end()) return {};
  return static_cast<int>(found - view.cards.begin());
}

}  // namespace headroom::gpu

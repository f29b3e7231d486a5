#include "headroom/cli/core/view/machine_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "headroom/base/text.h"
#include "headroom/base/wrap.h"
#include "headroom/cli/core/top/history.h"
#include "headroom/cli/core/top/screen.h"
#include "headroom/gpu/machine_advice.h"

namespace headroom::cli {
namespace {

using gpu::Card;

std::string name_of(const Card& card) {
  return card.slice ? short_text(card.uuid) : std::to_string(card.index);
}

// "0: 31.0/31.4G 98%"
std::string with_sizes(const Card& card, Clock::time_point now) {
  if (!is_fresh(card, now)) return name_of(card) + ": stale";
  if (!card.memory) return name_of(card) + ": ?";
  const std::string load = card.utilization ? fmt::format(" {}%", *card.utilization) : "";
  return name_of(card) + ": " + brief_of(taken_of(*card.memory), card.memory->total) + load;
}

// "0 99%"
std::string with_share(const Card& card, Clock::time_point now) {
  if (!is_fresh(card, now) || !card.memory) return name_of(card) + " ?";
  return fmt::format("{} {:.0f}%", name_of(card),
                     100 * ratio(taken_of(*card.memory), card.memory->total));
}

std::string sum_of(const std::vector<const Card*>& cards, Clock::time_point now) {
  Bytes used, total;
  for (const Card* card : cards) {
    if (!is_fresh(*card, now) || !card->memory) continue;
    used += taken_of(*card->memory);
    total += card->memory->total;
  }
  return total > Bytes{} ? brief_of(used, total) + " used" : "memory unknown";
}

std::string without_cards(const gpu::Machine& machine) {
  if (machine.silent) return "GPU driver does not answer";
  return machine.why_no_driver.empty() ? "no GPUs" : "no GPU driver";
}

}  // namespace

std::string machine_line(const gpu::Machine& machine, const Terminal& terminal,
                         Clock::time_point now) {
  std::vector<const Card*> cards;  // the slices of a card stand for it
  for (const Card& card : machine.cards)
    if (!card.mig_enabled) cards.push_back(&card);
  if (cards.empty()) return without_cards(machine);
  const auto free = std::count_if(cards.begin(), cards.end(), [&](const Card* card) {
    return is_fresh(*card, now) && gpu::is_idle(*card);
  });
  const std::string between = std::string(" ") + terminal.dash() + " ";
  const std::string begin = fmt::format("{}/{} free", free, cards.size());
  for (const auto text_of : {&with_sizes, &with_share}) {
    std::string line = begin;
    for (const Card* card : cards) line += between + text_of(*card, now);
    if (cells(line) <= static_cast<std::size_t>(terminal.width)) return line;
  }
  return begin + between + sum_of(cards, now);
}

}  // namespace headroom::cli

#include "headroom/sim/device/cards.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "headroom/base/error.h"
#include "headroom/libtorch/operator_refusal.h"

namespace headroom::sim::detail {
namespace {

std::array<std::atomic<Card*>, kMostCards> table{};
std::atomic<int> count{0};
std::atomic<bool> shown_as_cuda{false};
thread_local int selected_card = 0;

Complaint no_card(int index) {
  const int cards = card_count();
  if (shown_as_cuda)
    return expectation("cuda", "a card below " + std::to_string(cards),
                       "cuda:" + std::to_string(index),
                       "more cards, such as --gpus sim:" + std::to_string(index + 1) + "xH100");
  const std::string expected = cards == 0 ? "simulated cards, of which none exist"
                               : cards == 1
                                   ? "the only simulated card, sim:0"
                                   : "a card from sim:0 to sim:" + std::to_string(cards - 1);
  const int enough = std::clamp(index + 1, 1, kMostCards);
  return expectation(
      "sim", expected, "sim:" + std::to_string(index),
      index < kMostCards
          ? "simulate(\"" + std::to_string(enough) + "x24GiB\"), and keep what it returns"
          : "one of the first " + std::to_string(kMostCards) + " cards, the largest number");
}

}  // namespace

Card* find_card(int index) noexcept {
  if (index < 0 || index >= kMostCards) return nullptr;
  return table[static_cast<std::size_t>(index)].load(std::memory_order_acquire);
}

Card& card_at(int index) {
  if (Card* card = find_card(index)) return *card;
  throw libtorch::DeviceError(no_card(index));
}

Card& named_card(int index) {
  if (Card* card = find_card(index)) return *card;
  throw UsageError(no_card(index));
}

bool are_shown_as_cuda() noexcept {
  return shown_as_cuda;
}

bool show_as_cuda(bool shown) noexcept {
  return shown_as_cuda.exchange(shown);
}

int card_count() noexcept {
  return count.load(std::memory_order_acquire);
}

int current_card() noexcept {
  return selected_card;
}
int exchange_current_card(int index) noexcept {
  return std::exchange(selected_card, index);
}

void install_cards(const std::vector<std::shared_ptr<Card>>& cards) noexcept {
  for (std::size_t i = 0; i < cards.size(); ++i)
    table[i].store(cards[i].get(), std::memory_order_release);
  count.store(static_cast<int>(cards.size()), std::memory_order_release);
}

void remove_cards() noexcept {
  count.store(0, std::memory_order_release);
  for (auto& card : table) card.store(nullptr, std::memory_order_release);
}

}  // namespace headroom::sim::detail

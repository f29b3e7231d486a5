// The cards of this process, by index, for the parts that LibTorch calls with nothing but a number.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "headroom/sim/card.h"

namespace headroom::sim::detail {

inline constexpr int kMostCards = gpu::kMostSimulatedCards;

// Null: no such card now. Operators run while their simulation lives, so the pointer holds for the
// time of a call.
[[nodiscard]] Card* find_card(int index) noexcept;
// For operators: throws libtorch::DeviceError if there is none.
[[nodiscard]] Card& card_at(int index);
// For our own functions: throws UsageError.
[[nodiscard]] Card& named_card(int index);
// Of cards now.
[[nodiscard]] int card_count() noexcept;

// The card that this thread's factories without an index use, as cudaSetDevice.
[[nodiscard]] int current_card() noexcept;
int exchange_current_card(int index) noexcept;

// For Simulation alone, one at a time.
void install_cards(const std::vector<std::shared_ptr<Card>>& cards) noexcept;
void remove_cards() noexcept;

}  // namespace headroom::sim::detail

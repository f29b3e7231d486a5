// The cards of this process by index, for functions that LibTorch calls with only a number.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "headroom/sim/card.h"

namespace headroom::sim::detail {

inline constexpr int kMostCards = gpu::kMostSimulatedCards;

// Null if there is no such card now. The pointer holds during a call, since a simulation outlives
// its operators.
[[nodiscard]] Card* find_card(int index) noexcept;
// For operators. Throws libtorch::DeviceError if there is none.
[[nodiscard]] Card& card_at(int index);
// For our own functions. Throws UsageError if there is none.
[[nodiscard]] Card& named_card(int index);
// Number of cards now.
[[nodiscard]] int card_count() noexcept;

// The card of this thread's factories without an index, as set by cudaSetDevice.
[[nodiscard]] int current_card() noexcept;
int exchange_current_card(int index) noexcept;

// Whether the cards look like CUDA devices to programs now (as_cuda.h), and are named so in
// messages.
[[nodiscard]] bool are_shown_as_cuda() noexcept;
bool show_as_cuda(bool shown) noexcept;  // returns the value from before

// Only for Simulation, one at a time.
void install_cards(const std::vector<std::shared_ptr<Card>>& cards) noexcept;
void remove_cards() noexcept;

}  // namespace headroom::sim::detail

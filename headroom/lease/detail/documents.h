// The contents of the folder's files (docs/formats/lease.md).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/lease/queue.h"

namespace headroom::lease::detail {

[[nodiscard]] std::string text_of(const Claim& claim);
[[nodiscard]] std::string text_of(const Waiter& waiter);
// One line.
[[nodiscard]] std::string text_of(const Grant& grant);

// std::nullopt for an invalid text. The identifier stays empty: it is the file's name.
[[nodiscard]] std::optional<Claim> read_claim(std::string_view text);
[[nodiscard]] std::optional<Waiter> read_waiter(std::string_view text);
// The complete lines; a killed writer may leave an incomplete last line.
[[nodiscard]] std::vector<Grant> read_grants(std::string_view text);

}  // namespace headroom::lease::detail

// What stands in the files of the folder (docs/formats/lease.md).
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

// Nothing for a text that is none. Without the identifier, which is the file's name.
[[nodiscard]] std::optional<Claim> read_claim(std::string_view text);
[[nodiscard]] std::optional<Waiter> read_waiter(std::string_view text);
// The lines that are whole; the last of a writer that was killed may not be.
[[nodiscard]] std::vector<Grant> read_grants(std::string_view text);

}  // namespace headroom::lease::detail

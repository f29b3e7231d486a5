// What is said of a word that is none of the choices.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headroom::model::detail {

// Throws UsageError: expected `what`, one of `choices`; received `word`.
[[noreturn]] void refuse(std::string_view what, std::string_view word,
                         const std::vector<std::string>& choices);

}  // namespace headroom::model::detail

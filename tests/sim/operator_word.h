// The words of a line of operator_cases.txt: what each means as an argument of an operator.
#pragma once

#include <string>
#include <vector>

#include "operator_case.h"

namespace headroom::sim::testing {

// Blanks separate words, but not within brackets.
[[nodiscard]] std::vector<std::string> words_of(const std::string& text);
// The items of "[a,b]".
[[nodiscard]] std::vector<std::string> items_of(const std::string& list);
// True for "x(2,3)" and "i5(4)".
[[nodiscard]] bool is_tensor(const std::string& word);
// The argument of this type that the word means.
[[nodiscard]] c10::IValue value_of(const std::string& word, const std::string& type,
                                   const Variant& variant);

}  // namespace headroom::sim::testing

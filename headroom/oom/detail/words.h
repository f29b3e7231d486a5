// The words of a line, separated by blanks.
#pragma once

#include <algorithm>
#include <string_view>

namespace headroom::oom::detail {

inline constexpr std::size_t kNowhere = std::string_view::npos;  // not found

template <typename Words>
[[nodiscard]] bool is_one_of(std::string_view word, const Words& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Removes the last word from `text` and returns it, or "" if there is none.
inline std::string_view take_last_word(std::string_view& text) {
  while (text.ends_with(' ')) text.remove_suffix(1);
  const std::size_t blank = text.rfind(' ');
  const std::string_view word = blank == kNowhere ? text : text.substr(blank + 1);
  text.remove_suffix(word.size());
  return word;
}

}  // namespace headroom::oom::detail

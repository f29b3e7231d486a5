// Reads an allocator setting word by word, as PyTorch 2.11 does.
//
// It knows how to read numbers and switches and how to word a refusal; settings.cpp knows the
// options. Use one walk for one text, on one thread.
//
//   Walk walk("max_split_size_mb:512");
//   walk.belongs_to(walk.next());  // from here on refusals name max_split_size_mb
//   walk.next();                   // the colon
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/allocator/settings.h"
#include "headroom/base/error.h"

namespace headroom::allocator::detail {

// Drops white space everywhere, even inside a name. Each of , : [ ] is a separate word.
inline std::vector<std::string> words_of(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\v\f\r";
  std::vector<std::string> words;
  std::string word;
  const auto finish_word = [&] {
    if (!word.empty()) words.push_back(word);
    word.clear();
  };
  for (const char c : text) {
    const bool stands_alone = c == ',' || c == ':' || c == '[' || c == ']';
    if (stands_alone) {
      finish_word();
      words.emplace_back(1, c);
    } else if (kSpace.find(c) == std::string_view::npos) {
      word += c;
    }
  }
  finish_word();
  return words;
}

inline const OptionInfo& info_of(std::string_view option) {
  for (const OptionInfo& info : options())
    if (info.name == option) return info;
  throw InternalError(expectation("info_of", "an option of the allocator", option));
}

class Walk {
 public:
  explicit Walk(std::string_view text) : text_(text), words_(words_of(text)) {}

  void belongs_to(std::string_view option) { option_ = option; }

  [[nodiscard]] bool done() const { return at_ == words_.size(); }
  [[nodiscard]] const std::string& peek() const {
    if (done()) refuse_cut_short();
    return words_[at_];
  }
  const std::string& next() {
    const std::string& word = peek();
    ++at_;
    return word;
  }
  [[nodiscard]] const std::string& last() const { return words_[at_ - 1]; }

  // 2.11 calls these standard functions. They stop at the first character that does not fit, so a
  // unit is silently ignored, and a minus sign wraps around: "-1" is 2^64-1.
  [[nodiscard]] std::uint64_t whole_number(const std::string& word) const {
    try {
      return std::stoull(word);
    } catch (const std::logic_error&) {
      refuse(word);
    }
  }
  std::uint64_t next_whole_number() { return whole_number(next()); }
  double next_fraction() {
    const std::string& word = next();
    try {
      return std::stod(word);
    } catch (const std::logic_error&) {
      refuse(word);
    }
  }
  bool next_switch() {
    const std::string& word = next();
    if (word != "True" && word != "False") refuse(word);
    return word == "True";
  }

  [[noreturn]] void refuse(std::string_view received) const {
    refuse(received, info_of(option_).allowed);
  }
  [[noreturn]] void refuse(std::string_view received, std::string_view allowed) const {
    throw UsageError(expectation("parse_settings", option_ + " to be " + std::string(allowed),
                                 received, example()));
  }

  bool backend_is_fixed = false;  // refuse any backend other than the current one

 private:
  [[noreturn]] void refuse_cut_short() const {
    if (option_.empty()) throw InternalError("Walk", "read past the end of an allocator setting");
    throw UsageError(expectation(
        "parse_settings",
        option_ + " to be followed by a value: " + std::string(info_of(option_).allowed), text_,
        example()));
  }
  [[nodiscard]] std::string example() const {
    return option_ + ":" + std::string(info_of(option_).example);
  }

  std::string text_;
  std::vector<std::string> words_;
  std::size_t at_ = 0;
  std::string option_;
};

}  // namespace headroom::allocator::detail

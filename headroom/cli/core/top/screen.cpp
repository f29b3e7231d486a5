#include "headroom/cli/core/top/screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <clocale>
#include <cwchar>

namespace headroom::cli {
namespace {

// The characters of UTF-8 in this thread, whatever the program's locale; so a pipe shows the same
// as a terminal.
class Utf8Locale {
 public:
  Utf8Locale() : own_(::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)), before_(::uselocale(own_)) {}
  ~Utf8Locale() {
    ::uselocale(before_);
    if (own_ != nullptr) ::freelocale(own_);
  }
  Utf8Locale(const Utf8Locale&) = delete;
  Utf8Locale& operator=(const Utf8Locale&) = delete;

 private:
  locale_t own_, before_;
};

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

// The character that the text begins with, or `?` in its place; removes it from the text.
std::string_view next_in_one_cell(std::string_view& text) {
  wchar_t character = 0;
  std::mbstate_t state{};
  const std::size_t length = std::mbrtowc(&character, text.data(), text.size(), &state);
  const bool is_valid = length > 0 && length <= text.size();  // else an error's code
  const bool has_one = is_valid && (character < 0x80 || ::wcwidth(character) == 1);
  const std::string_view shown = has_one ? text.substr(0, length) : "?";
  text.remove_prefix(is_valid ? length : 1);
  return shown;
}

}  // namespace

std::string text_of(const Line& line) {
  std::string text;
  for (const Span& span : line) text += span.text;
  return text;
}

int cells_of(const Line& line) {
  std::size_t count = 0;
  for (const Span& span : line) count += cells(span.text);
  return static_cast<int>(count);
}

Line fitted(Line line, int width, const Terminal& terminal) {
  int left = std::max(0, width);
  Line cut;
  for (Span& span : line) {
    if (left == 0) break;
    span.text = fitted(span.text, static_cast<std::size_t>(left), terminal);
    left -= static_cast<int>(cells(span.text));
    cut.push_back(std::move(span));
  }
  if (left > 0) cut.push_back({std::string(static_cast<std::size_t>(left), ' ')});
  return cut;
}

Line reversed(Line line, int width, const Terminal& terminal) {
  line = fitted(std::move(line), width, terminal);
  for (Span& span : line) span = {std::move(span.text), Colour::plain, true};
  return line;
}

std::string in_cells(std::string_view text, int width, const Terminal& terminal, bool right) {
  const auto room = static_cast<std::size_t>(std::max(0, width));
  std::string cut = fitted(text, room, terminal);
  const std::string blanks(room - cells(cut), ' ');
  return right ? blanks + cut : cut + blanks;
}

std::string showable(std::string text, const Terminal& terminal) {
  if (is_ascii(text)) return text;
  if (terminal.unicode) {
    const Utf8Locale here;
    std::string narrow;
    for (std::string_view rest = text; !rest.empty();) narrow += next_in_one_cell(rest);
    return narrow;
  }
  std::string ascii;
  for (const char c : text)
    if (begins_character(c)) ascii += static_cast<unsigned char>(c) < 0x80 ? c : '?';
  return ascii;
}

std::string graph(const std::vector<std::optional<int>>& percents, const Terminal& terminal) {
  static constexpr std::array<const char*, 8> kBlocks{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr std::array<const char*, 8> kAscii{"_", ".", "-", "=", "+", "*", "#", "@"};
  std::string text;
  for (const auto& percent : percents) {
    if (!percent) {
      text += ' ';
      continue;
    }
    const auto level = static_cast<std::size_t>(std::clamp(*percent * 8 / 101, 0, 7));
    text += terminal.unicode ? kBlocks.at(level) : kAscii.at(level);
  }
  return text;
}

std::string brief(Bytes size) {
  if (size.gib() >= 99.95) return fmt::format("{:.0f}G", size.gib());
  if (size.mib() >= 999.5) return fmt::format("{:.1f}G", size.gib());
  if (size.mib() >= 1) return fmt::format("{:.0f}M", size.mib());
  return size > Bytes{0} ? "<1M" : "0";
}

std::string brief_of(Bytes used, Bytes total) {
  if (total.gib() >= 99.95) return fmt::format("{:.0f}/{:.0f}G", used.gib(), total.gib());
  if (total.mib() >= 999.5) return fmt::format("{:.1f}/{:.1f}G", used.gib(), total.gib());
  return fmt::format("{:.0f}/{:.0f}M", used.mib(), total.mib());
}

std::string brief_age(Seconds age) {
  std::string text = duration_text(std::max(Seconds(0), Seconds(age)));
  std::erase(text, ' ');
  return text;
}

}  // namespace headroom::cli

#include "headroom/config/detail/value.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/text.h"
#include "headroom/config/model_variants.h"

namespace headroom::config::detail {
namespace {

// A number without trailing zeros: "4", "0.5".
std::string plain_number(double number) {
  return to_line(number == std::floor(number) && std::abs(number) < 1e18
                     ? Json(static_cast<std::int64_t>(number))
                     : Json(number));
}

// ---- Errors ----

std::string range_words(const Key& key) {
  const bool ends = std::isfinite(key.most);
  if (ends) return " from " + plain_number(key.least) + " to " + plain_number(key.most);
  return " of " + plain_number(key.least) + " or more";
}

std::string expected_words(const Key& key) {
  switch (key.kind) {
    case Kind::text:
      return "text";
    case Kind::whole:
      return "a whole number" + range_words(key);
    case Kind::number:
      return "a number" + range_words(key);
    case Kind::flag:
      return "true or false";
    case Kind::share:
      return "a share" + range_words(key);
    case Kind::share_or_bytes:
      return "a share" + range_words(key) + ", or a size of at least 1MiB with its unit";
    case Kind::choice:
      return "one of " + join(key.choices, ", ");
    case Kind::words:
      return "words with commas between them";
    case Kind::variants:
      return "a list of models by memory";
  }
  return {};
}

// A right value for the key, near the received one.
std::string suggestion(const Key& key, std::string_view received) {
  if (key.kind == Kind::choice) {
    std::string word = nearest(received, key.choices).value_or(key.choices.front());
    if (word.ends_with(":N")) word.replace(word.size() - 1, 1, plain_number(key.least));
    return word;
  }
  if (key.usual && !key.usual->empty()) return *key.usual;
  if (key.kind == Kind::whole) return plain_number(std::max(key.least, 8.0));
  if (key.kind == Kind::number) return "0.001";
  if (key.kind == Kind::words) return "q,v";
  return {};
}

[[noreturn]] void refuse_value(const Key& key, std::string_view received) {
  const std::string shown = without_controls(std::string(beginning(received, 200)));
  throw UsageError(expectation("config", expected_words(key), shown, suggestion(key, shown)));
}

// ---- Numbers ----

bool is_within(const Key& key, double number) {
  return number >= key.least && number <= key.most;
}

std::optional<std::string> whole_text(const Key& key, std::string_view text) {
  const auto number = to_integer(text);
  if (!number || !is_within(key, static_cast<double>(*number))) return {};
  return std::to_string(*number);
}

std::optional<std::string> number_text(const Key& key, std::string_view text) {
  const auto number = to_number(text);
  return number && is_within(key, *number) ? std::optional(std::string(text)) : std::nullopt;
}

std::optional<double> share_of(std::string_view text) {
  const bool percent = text.ends_with('%');
  if (percent) text = trim(text.substr(0, text.size() - 1));
  const auto number = to_number(text);
  return number && percent ? *number / 100 : number;
}

std::optional<std::string> share_text(const Key& key, std::string_view text) {
  const auto share = share_of(text);
  return share && is_within(key, *share) ? std::optional(plain_number(*share)) : std::nullopt;
}

// A bare number above 1 and below 1 MiB is a size without its unit.
std::optional<std::string> share_or_bytes_text(const Key& key, std::string_view text) {
  const auto share = share_of(text);
  if (share && *share >= key.least && *share <= 1) return plain_number(*share);
  if (text.ends_with('%') || (share && *share < key.least)) return {};
  constexpr Bytes kLeast{1 << 20};  // no part of a card is planned more finely
  if (parse_amount(text, "config") < kLeast) return {};
  return std::string(text);
}

// ---- Words ----

std::optional<std::string> flag_text(std::string_view text) {
  const std::string word = lower(text);
  if (word == "true" || word == "yes" || word == "on") return "true";
  if (word == "false" || word == "no" || word == "off") return "false";
  return {};
}

std::optional<std::string> choice_text(const Key& key, std::string_view text) {
  const std::optional<std::string> flag = flag_text(text);
  for (const std::string& choice : key.choices) {
    if (choice == text || (flag && choice == *flag)) return choice;
    if (!choice.ends_with(":N")) continue;
    const std::string_view prefix = std::string_view(choice).substr(0, choice.size() - 1);
    if (!text.starts_with(prefix)) continue;
    const auto number = whole_text(key, text.substr(prefix.size()));
    if (number) return std::string(prefix) + *number;
  }
  return {};
}

std::optional<std::string> words_text(const Json& given) {
  std::vector<std::string> all;
  const auto add = [&](std::string_view text) {
    for (const std::string_view part : split(text, ',')) all.emplace_back(trim(part));
  };
  if (given.is_string()) add(given.get_ref<const std::string&>());
  if (given.is_array())
    for (const Json& item : given)
      add(item.is_string() ? std::string_view(item.get_ref<const std::string&>()) : "");
  const bool has_empty = std::find(all.begin(), all.end(), "") != all.end();
  return all.empty() || has_empty ? std::nullopt : std::optional(join(all, ","));
}

std::optional<std::string> variants_text(const Json& given) {
  (void)model_variants_from(given);
  return to_line(given);
}

// One line of UTF-8, which every form of the configuration can hold. The two ways to write text as
// JSON differ where it is not UTF-8.
bool is_one_line(const std::string& given) {
  const std::string text(trim(given));
  return text == without_controls(text) &&
         Json(text).dump(-1, ' ', false, Json::error_handler_t::replace) ==
             Json(text).dump(-1, ' ', false, Json::error_handler_t::ignore);
}

void check_text(const Json& given) {
  if (given.is_structured())
    for (const Json& item : given) check_text(item);
  if (given.is_string() && !is_one_line(given.get_ref<const std::string&>()))
    throw UsageError(expectation("config", "one line of text in UTF-8", "other characters",
                                 "a value without them"));
}

// As a shell does for words of its own, but not for `key=~/folder` or for a file's values.
std::string with_home(std::string_view text) {
  const auto home = environment("HOME");
  if (!home || !text.starts_with("~/")) return std::string(text);
  return *home + std::string(text.substr(1));
}

std::optional<std::string> scalar_text(const Key& key, std::string_view text) {
  switch (key.kind) {
    case Kind::whole:
      return whole_text(key, text);
    case Kind::number:
      return number_text(key, text);
    case Kind::flag:
      return flag_text(text);
    case Kind::share:
      return share_text(key, text);
    case Kind::share_or_bytes:
      return share_or_bytes_text(key, text);
    case Kind::choice:
      return choice_text(key, text);
    case Kind::text:
      return with_home(text);
    case Kind::words:
    case Kind::variants:
      break;
  }
  return std::string(text);
}

bool means_nothing(const Json& given) {
  if (given.is_null()) return true;
  if (!given.is_string()) return false;
  const std::string_view text = trim(given.get_ref<const std::string&>());
  return text.empty() || text == "none" || text == "null" || text == "~";
}

}  // namespace

std::optional<std::string> checked(const Key& key, const Json& given) {
  if (key.is_optional() && means_nothing(given)) return {};
  check_text(given);
  std::optional<std::string> text;
  if (key.kind == Kind::words)
    text = words_text(given);
  else if (key.kind == Kind::variants)
    text = variants_text(given);
  else if (given.is_string())
    text = scalar_text(key, trim(given.get_ref<const std::string&>()));
  else if (given.is_null() && key.kind == Kind::text)
    text = "";
  if (text) return text;
  refuse_value(key, given.is_string() ? given.get<std::string>()
                    : given.is_null() ? "none"
                                      : to_line(given));
}

ShareOrBytes share_or_bytes(std::string_view text) {
  if (const auto share = share_of(text)) {
    if (*share <= 1) return {.share = share, .bytes = {}};
  }
  return {.share = {}, .bytes = parse_bytes(text)};
}

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> all;
  for (const std::string_view part : split(text, ',')) all.emplace_back(part);
  return all;
}

Json json_of(const Key& key, const std::string& text) {
  switch (key.kind) {
    case Kind::whole:
      return to_integer(text).value();
    case Kind::number:
    case Kind::share:
      return to_number(text).value();
    case Kind::flag:
      return text == "true";
    case Kind::share_or_bytes: {
      const ShareOrBytes amount = share_or_bytes(text);
      return amount.share ? Json(*amount.share) : Json(amount.bytes.count);
    }
    case Kind::words:
      return words(text);
    case Kind::variants:
      return parse_json(text, key.name);
    case Kind::text:
    case Kind::choice:
      break;
  }
  return text;
}

}  // namespace headroom::config::detail

#include "headroom/base/amount.h"

#include "headroom/base/error.h"
#include "headroom/base/text.h"

namespace headroom {
namespace {

Bytes with_unit(std::string_view text, std::string_view where) {
  try {
    return parse_bytes(text);
  } catch (const UsageError&) {
    throw UsageError(expectation(where, "a size such as 512MiB, 10GiB or 24GB", text, "10GiB"));
  }
}

}  // namespace

Bytes parse_amount(std::string_view text, std::string_view where) {
  constexpr double kLeastBare = 1 << 20;
  const auto bare = to_number(trim(text));
  const bool meant_in_gib = bare && *bare > 0 && *bare < 1024;
  if (bare && *bare > 0 && *bare < kLeastBare)
    throw UsageError(expectation(where, "a size with its unit", text,
                                 std::string(trim(text)) + (meant_in_gib ? "GiB" : "MiB")));
  const Bytes size = with_unit(text, where);
  if (size.count == 0) throw UsageError(expectation(where, "more than 0", text, "10GiB"));
  return size;
}

ShareOrBytes parse_share_or_amount(std::string_view text, std::string_view where) {
  const std::string_view trimmed = trim(text);
  const bool percent = trimmed.ends_with('%');
  const auto number = to_number(percent ? trim(trimmed.substr(0, trimmed.size() - 1)) : trimmed);
  const double share = number.value_or(0) / (percent ? 100 : 1);
  if (percent && (!number || !(share >= 0 && share < 1)))
    throw UsageError(expectation(where, "a share from 0% to below 100%, or a size", text, "10%"));
  if (number && share < 0)
    throw UsageError(expectation(where, "a share from 0 to below 1, or a size", text, "0.1"));
  if (number && share < 1) return {.share = share};
  return {.share = {}, .bytes = parse_amount(text, where)};
}

}  // namespace headroom

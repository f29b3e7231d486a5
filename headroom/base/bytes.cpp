#include "headroom/base/bytes.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "headroom/base/error.h"
#include "headroom/base/text.h"

namespace headroom {
namespace {

struct SizeUnit {
  std::string_view name;
  double bytes;
};

constexpr double kKiB = 1024.0, kMiB = kKiB * kKiB, kGiB = kMiB * kKiB, kTiB = kGiB * kKiB;
constexpr SizeUnit kSizeUnits[] = {
    {"", 1},       {"b", 1},     {"byte", 1},   {"bytes", 1}, {"kb", 1e3},   {"kib", kKiB},
    {"k", kKiB},   {"mb", 1e6},  {"mib", kMiB}, {"mi", kMiB}, {"m", kMiB},   {"gb", 1e9},
    {"gib", kGiB}, {"gi", kGiB}, {"g", kGiB},   {"tb", 1e12}, {"tib", kTiB}, {"t", kTiB}};

[[noreturn]] void refuse(std::string_view text) {
  throw UsageError(expectation("parse_bytes", "a size such as 512MiB, 10GiB, 24GB or plain bytes",
                               text, "10GiB"));
}

}  // namespace

Bytes parse_bytes(std::string_view text) {
  const std::string_view trimmed = trim(text);
  double number = 0;
  const auto [rest, error] = std::from_chars(trimmed.data(), trimmed.data() + trimmed.size(),
                                             number, std::chars_format::fixed);
  if (error != std::errc{} || !(number >= 0)) refuse(text);

  const std::size_t used = static_cast<std::size_t>(rest - trimmed.data());
  const std::string unit = lower(trim(trimmed.substr(used)));
  for (const SizeUnit& known : kSizeUnits) {
    if (unit != known.name) continue;
    const double bytes = std::floor(number * known.bytes + 0.5);
    // 2^63 itself is not an int64; every smaller double is.
    if (bytes >= 9223372036854775808.0) refuse(text);
    return Bytes{static_cast<std::int64_t>(bytes)};
  }
  refuse(text);
}

std::string to_string(Bytes size) {
  const double bytes = std::abs(static_cast<double>(size.count));
  const char* sign = size.count < 0 ? "-" : "";
  std::array<char, 48> out{};
  const auto print = [&](const char* format, double amount) {
    std::snprintf(out.data(), out.size(), format, sign, amount);
  };
  // The limits lie where rounding would print "1024.0": such a size takes the next unit.
  if (bytes < 1024) {
    print("%s%.0f B", bytes);
  } else if (bytes < 1023.95 * kKiB) {
    print("%s%.1f KiB", bytes / kKiB);
  } else if (bytes < 1023.95 * kMiB) {
    print("%s%.1f MiB", bytes / kMiB);
  } else if (bytes < 1023.995 * kGiB) {
    print("%s%.2f GiB", bytes / kGiB);
  } else {
    print("%s%.2f TiB", bytes / kTiB);
  }
  return out.data();
}

}  // namespace headroom

// Texts of expandable_segments_reserve and expandable_segments_reserve_by_class.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>

#include "headroom/allocator/settings.h"

namespace headroom::allocator::detail {

// "0.5" or "40G", in decimal digits. PyTorch ignores any other text, with a warning.
inline std::optional<AddressReserve> reserve_of(std::string text) {
  AddressReserve reserve;
  if (text.ends_with('G') || text.ends_with('g')) {
    reserve.is_share = false;
    text.pop_back();
  }
  char* end = nullptr;
  reserve.value = std::strtod(text.c_str(), &end);
  const bool is_decimal = text.find_first_of("xX") == std::string::npos;
  const bool is_whole = !text.empty() && *end == 0;
  if (!is_decimal || !is_whole || !std::isfinite(reserve.value) || reserve.value <= 0) return {};
  return reserve;
}

// reserve_of() reads it back to the same value.
inline std::string to_text(const AddressReserve& reserve) {
  char digits[64];
  char* const end = std::to_chars(digits, std::end(digits), reserve.value).ptr;
  return std::string(digits, end) + (reserve.is_share ? "" : "G");
}

// Keeps the list sorted by name.
inline void set_class_reserve(Settings& settings, const std::string& name, AddressReserve reserve) {
  auto& classes = settings.expandable_segments_reserve_by_class;
  const auto at = std::lower_bound(
      classes.begin(), classes.end(), name,
      [](const ClassReserve& one, const std::string& wanted) { return one.name < wanted; });
  if (at != classes.end() && at->name == name)
    at->reserve = reserve;
  else
    classes.insert(at, {name, reserve});
}

}  // namespace headroom::allocator::detail

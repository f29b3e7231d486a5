// The format's types that weights can have, and LibTorch's for each.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <optional>
#include <string_view>
#include <utility>

namespace headroom::weights::detail {

// In the order in which the format's own library writes tensors into a file.
inline constexpr std::array<std::pair<std::string_view, c10::ScalarType>, 10> kWeightTypes{{
    {"I64", c10::kLong},
    {"F64", c10::kDouble},
    {"F32", c10::kFloat},
    {"I32", c10::kInt},
    {"BF16", c10::kBFloat16},
    {"F16", c10::kHalf},
    {"I16", c10::kShort},
    {"I8", c10::kChar},
    {"U8", c10::kByte},
    {"BOOL", c10::kBool},
}};

[[nodiscard]] inline std::optional<c10::ScalarType> weight_type(std::string_view name) {
  for (const auto& [known, type] : kWeightTypes)
    if (known == name) return type;
  return {};
}

// The type's position in kWeightTypes.
[[nodiscard]] inline std::optional<std::size_t> type_index(c10::ScalarType type) {
  for (std::size_t i = 0; i < kWeightTypes.size(); ++i)
    if (kWeightTypes[i].second == type) return i;
  return {};
}

}  // namespace headroom::weights::detail

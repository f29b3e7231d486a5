// The figures of a profile's rows, and the order of rows by them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/profile/profile.h"

namespace headroom::profile::detail {

enum class Unit : std::uint8_t { count, bytes, seconds };

// A figure of ProfileRow: a key to sort by, and a column of the table.
struct Figure {
  static constexpr int kAlways = 9;

  std::string_view key, heading;
  Unit unit;
  double (*of)(const ProfileRow&);
  int use;  // a table leaves the columns of less use out first; kAlways: none
  bool of_device = false;
};

// In the order of the table's columns.
[[nodiscard]] std::span<const Figure> figures();

// "cpu_s" for "cpu_time_total"; other names stay.
[[nodiscard]] std::string own_name(std::string key);

// By a figure, or PyTorch's name of one; largest first. Throws UsageError for another name.
void sort(std::vector<ProfileRow>& rows, const std::string& sort_by);

}  // namespace headroom::profile::detail

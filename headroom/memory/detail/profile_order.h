// The order of a profile's rows.
#pragma once

#include <string>
#include <vector>

#include "headroom/memory/profile.h"

namespace headroom::memory::detail {

// "cpu_s" for "cpu_time_total"; other names stay.
[[nodiscard]] std::string own_name(std::string key);

// By a figure, or PyTorch's name of one; largest first. Throws UsageError for another name.
void sort(std::vector<ProfileRow>& rows, const std::string& sort_by);

}  // namespace headroom::memory::detail

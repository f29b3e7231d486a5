// The limits that hold for some settings of a case only.
#pragma once

#include <string>

#include "case.h"

namespace headroom::coverage {

// Why with channels last the values are not the CPU's, though in rows they are; empty: they are.
[[nodiscard]] std::string not_exact_channels_last(const Case& one);

// With this version of LibTorch they are all the same.
[[nodiscard]] bool became_exact_channels_last(const Case& one);

// Why in bf16 the CPU itself gives other values from run to run; empty: it does not.
[[nodiscard]] std::string unsteady_in_bf16(const Case& one);

}  // namespace headroom::coverage

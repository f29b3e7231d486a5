// The one limit that depends on the layout of the inputs, not on the case alone.
#pragma once

#include <string>

#include "case.h"

namespace headroom::coverage {

// Why with channels last the values are not the CPU's, though in rows they are; empty: they are.
[[nodiscard]] std::string not_exact_channels_last(const Case& one);

}  // namespace headroom::coverage

// docs/reference/simulated-modules.md, made of the cases: what of LibTorch runs on simulated cards,
// and every exception with its reason.
#pragma once

#include <string>

namespace headroom::coverage {

[[nodiscard]] std::string page();

}  // namespace headroom::coverage

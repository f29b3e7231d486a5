// Page-locked host memory: in fact ordinary memory, remembered as pinned.
#pragma once

#include <c10/core/Allocator.h>

namespace headroom::sim::detail {

[[nodiscard]] bool is_pinned(const void* pointer);
[[nodiscard]] c10::Allocator* pinned_allocator();

}  // namespace headroom::sim::detail

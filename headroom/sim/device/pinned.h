// Page-locked host memory, as far as anybody can tell: ordinary memory that is known to be it.
#pragma once

#include <c10/core/Allocator.h>

namespace headroom::sim::detail {

[[nodiscard]] bool is_pinned(const void* pointer);
[[nodiscard]] c10::Allocator* pinned_allocator();
void register_pinned_allocator();

}  // namespace headroom::sim::detail

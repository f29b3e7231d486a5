// Sharing a loop of a kernel out among LibTorch's threads.
#pragma once

#include <cstdint>
#include <functional>

namespace headroom::kernels::detail {

// Calls `work(begin, end)` for ranges that make up [0, count), of at least `least` unless one is
// all. Built without OpenMP (clang without libomp, the thread sanitizer) it makes one call.
void share_out(std::int64_t count, std::int64_t least,
               const std::function<void(std::int64_t, std::int64_t)>& work);

}  // namespace headroom::kernels::detail

// The one file that is compiled for OpenMP: at::parallel_for is a template of this header, and runs
// on one thread where its caller was compiled without.
#include "headroom/kernels/detail/threads.h"

#include <ATen/Parallel.h>

namespace headroom::kernels::detail {

void share_out(std::int64_t count, std::int64_t least,
               const std::function<void(std::int64_t, std::int64_t)>& work) {
  at::parallel_for(0, count, least, work);
}

}  // namespace headroom::kernels::detail

#include "headroom/optim/accumulation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "headroom/base/error.h"

namespace headroom::optim {

std::vector<Rows> parts_of(const Rows& whole, std::int64_t at_once) {
  if (at_once < 1)
    throw UsageError(
        expectation("parts_of", "at least one row at once", std::to_string(at_once), "1"));
  if (whole.first < 0 || whole.count < 0)
    throw UsageError(
        expectation("parts_of", "rows from 0 on",
                    std::to_string(whole.count) + " rows from " + std::to_string(whole.first)));
  std::vector<Rows> parts;
  for (std::int64_t done = 0; done < whole.count; done += at_once)
    parts.push_back({whole.first + done, std::min(at_once, whole.count - done)});
  return parts;
}

at::Tensor share_of_batch(const at::Tensor& mean_loss, std::int64_t counted, std::int64_t in_all) {
  if (counted < 0 || counted > in_all || in_all < 1)
    throw UsageError(expectation("share_of_batch", "a part of the batch's rows",
                                 std::to_string(counted) + " of " + std::to_string(in_all)));
  if (counted == 0) return at::nan_to_num(mean_loss) * 0;  // the mean of nothing is NaN
  return mean_loss * (static_cast<double>(counted) / static_cast<double>(in_all));
}

at::Tensor share_of_batch(const at::Tensor& mean_loss, const at::Tensor& counted,
                          const at::Tensor& in_all) {
  const at::Tensor here = counted.to(mean_loss.device());
  const at::Tensor share = here.to(at::kDouble) / in_all.to(mean_loss.device());
  const at::Tensor weighted = mean_loss * share.to(mean_loss.scalar_type());
  return at::where(here > 0, weighted, at::zeros_like(weighted));
}

}  // namespace headroom::optim

#include "headroom/optim/accumulation.h"

#include <ATen/ATen.h>

namespace headroom::optim {

at::Tensor share_of_batch(const at::Tensor& mean_loss, const at::Tensor& counted,
                          const at::Tensor& in_all) {
  const at::Tensor here = counted.to(mean_loss.device());
  const at::Tensor share = here.to(at::kDouble) / in_all.to(mean_loss.device());
  const at::Tensor weighted = mean_loss * share.to(mean_loss.scalar_type());
  return at::where(here > 0, weighted, at::zeros_like(weighted));
}

}  // namespace headroom::optim

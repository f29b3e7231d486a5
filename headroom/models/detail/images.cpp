#include "headroom/models/detail/images.h"

#include <ATen/ATen.h>

#include <string>

#include "headroom/base/error.h"
#include "headroom/base/text.h"

namespace headroom::models::detail {
namespace {

std::string sizes_of(const Tensor& pixels) {
  if (!pixels.defined()) return "a batch without pixels";
  std::vector<std::string> sizes;
  for (const std::int64_t size : pixels.sizes()) sizes.push_back(std::to_string(size));
  return join(sizes, " x ");
}

}  // namespace

void check_images(const Batch& batch, std::int64_t channels, std::optional<std::int64_t> side) {
  const Tensor& pixels = batch.pixels;
  const bool fits = pixels.defined() && pixels.dim() == 4 && pixels.size(1) == channels &&
                    (!side || (pixels.size(2) == *side && pixels.size(3) == *side));
  if (fits) return;
  const std::string extent =
      side ? std::to_string(*side) + " x " + std::to_string(*side) : "height x width";
  throw UsageError(expectation(
      "run", "images of rows x " + std::to_string(channels) + " x " + extent, sizes_of(pixels),
      side ? "the model's own image size: positions are not interpolated" : ""));
}

}  // namespace headroom::models::detail

#include "headroom/models/detail/rotary.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "headroom/libtorch/autocast.h"
#include "tests/models/tiny_models.h"

namespace headroom::models::detail {
namespace {

// transformers switches autocast off for the angles. Here their product ran in bfloat16, for which
// 299 is 300.
TEST(Rotary, IsComputedInFloatUnderAutocast) {
  Rotary rotary({tiny_llama(R"(,"max_position_embeddings":512)"), 4}, Transformers::v5);
  const at::Tensor positions = at::arange(512, at::kLong).unsqueeze(0);
  const CosSin plain = rotary(positions, at::kFloat);
  const libtorch::AutocastScope scope(at::kCPU, at::kBFloat16);
  const CosSin mixed = rotary(positions, at::kFloat);
  EXPECT_TRUE(at::equal(mixed.cos, plain.cos));
  EXPECT_TRUE(at::equal(mixed.sin, plain.sin));
}

}  // namespace
}  // namespace headroom::models::detail

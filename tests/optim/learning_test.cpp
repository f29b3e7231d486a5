// Training with numbers of fewer bits learns as float32 does. `bench_learning` has the long form:
// three seeds, 1,000 steps.
#include <gtest/gtest.h>

#include "tests/optim/small_gpt.h"

namespace headroom::optim {
namespace {

double learned(at::ScalarType type, const small_gpt::MakeOptimizer& make) {
  return small_gpt::last_of(small_gpt::train(type, make, 100, 1));
}

small_gpt::MakeOptimizer adamw(Rounding rounding) {
  return [rounding](const std::vector<torch::Tensor>& of, std::uint64_t seed) {
    return make_adamw(of, {.form = OptimizerForm::fused, .rounding = rounding, .seed = seed});
  };
}

small_gpt::MakeOptimizer compact(int bits) {
  return [bits](const std::vector<torch::Tensor>& of, std::uint64_t) {
    return make_compact_adamw(of, {.bits = bits});
  };
}

TEST(Learning, NeedsNeitherLargeStatesNorLargeWeights) {
  const std::vector<double> losses = small_gpt::train(at::kFloat, adamw(Rounding::nearest), 100, 1);
  const double usual = small_gpt::last_of(losses);
  EXPECT_LT(usual, 0.6 * losses.front());
  EXPECT_NEAR(learned(at::kFloat, compact(8)) / usual, 1, 0.01);
  EXPECT_NEAR(learned(at::kFloat, compact(4)) / usual, 1, 0.04);
  EXPECT_NEAR(learned(at::kBFloat16, adamw(Rounding::stochastic)) / usual, 1, 0.01);
  EXPECT_GT(learned(at::kBFloat16, adamw(Rounding::nearest)) / usual, 1.03);
}

}  // namespace
}  // namespace headroom::optim

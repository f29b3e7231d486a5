#include "headroom/libtorch/autocast.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "sides.h"

namespace headroom::sim {
namespace {

using libtorch::AutocastScope;
using ::testing::HasSubstr;
using torch::Tensor;

// The type of an operator's result under autocast to bfloat16, for float inputs.
template <typename Function>
at::ScalarType type_of(Rules rules, const Function& function) {
  const Simulation box = simulate("1x1GiB", {.rules = rules});
  const Tensor x = torch::ones({4, 4}, box.device(0));
  const AutocastScope scope(box.device(0).type(), at::kBFloat16);
  return function(x).scalar_type();
}

TEST(Autocast, LowersMatrixProducts) {
  for (const Rules rules : {Rules::cuda, Rules::cpu})
    EXPECT_EQ(type_of(rules, [](const Tensor& x) { return at::mm(x, x); }), at::kBFloat16);
}

TEST(Autocast, KeepsExponentialsInFloatOnlyOnCuda) {
  const auto exp_of_half = [](const Tensor& x) { return at::exp(x.to(at::kBFloat16)); };
  EXPECT_EQ(type_of(Rules::cuda, exp_of_half), at::kFloat);
  EXPECT_EQ(type_of(Rules::cpu, exp_of_half), at::kBFloat16);
}

TEST(Autocast, SumsInFloatOnlyOnCuda) {
  const auto sum = [](const Tensor& x) { return x.to(at::kBFloat16).sum(); };
  EXPECT_EQ(type_of(Rules::cuda, sum), at::kFloat);
  EXPECT_EQ(type_of(Rules::cpu, sum), at::kBFloat16);
  const auto softmax = [](const Tensor& x) { return at::softmax(x.to(at::kBFloat16), 1); };
  EXPECT_EQ(type_of(Rules::cuda, softmax), at::kFloat);
}

// Once autocast stayed off inside a function that only the other rule set lists: under CUDA's rules
// cross entropy, of which CUDA lists a part (nll_loss), gave a loss in bfloat16.
TEST(Autocast, ReachesThePartsOfAFunctionThatIsNotListed) {
  const auto loss = [](const Tensor& x) {
    const Tensor target = torch::zeros({4}, x.options().dtype(at::kLong));
    return at::cross_entropy_loss(x.to(at::kBFloat16), target);
  };
  EXPECT_EQ(type_of(Rules::cuda, loss), at::kFloat);
  EXPECT_EQ(type_of(Rules::cpu, loss), at::kFloat);
}

TEST(Autocast, TakesNormsInFloatOnCuda) {
  const auto norm = [](const Tensor& x) { return at::norm(x.to(at::kBFloat16), 2); };
  EXPECT_EQ(type_of(Rules::cuda, norm), at::kFloat);
}

TEST(Autocast, PromotesToTheWidest) {
  const auto dot = [](const Tensor& x) {
    return at::dot(x.flatten(), x.flatten().to(at::kBFloat16).to(at::kFloat));
  };
  EXPECT_EQ(type_of(Rules::cuda, dot), at::kFloat);
  const auto cat = [](const Tensor& x) { return at::cat({x, x.to(at::kBFloat16)}); };
  EXPECT_EQ(type_of(Rules::cpu, cat), at::kFloat);
}

TEST(Autocast, RefusesBinaryCrossEntropyAsCudaDoes) {
  const auto loss = [](const Tensor& x) { return at::binary_cross_entropy(x, x); };
  try {
    (void)type_of(Rules::cuda, loss);
    FAIL() << "it ran";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("unsafe to autocast"));
  }
  EXPECT_EQ(type_of(Rules::cpu, loss), at::kFloat);
}

TEST(Autocast, CastsAWeightOnceWhileTheOutermostScopeLasts) {
  const Simulation box = simulate("1x1GiB", {.cublas_workspaces = false});
  const Tensor weight = torch::ones({512, 512}, box.device(0)).set_requires_grad(true);
  const Tensor x = torch::ones({512, 512}, box.device(0));
  const auto allocated = [&] { return box.card(0).statistics().allocated_bytes.all.current; };
  const std::int64_t before = allocated();
  const torch::NoGradGuard no_grad;
  {
    const AutocastScope outer(box.device(0).type(), at::kHalf);
    {
      const AutocastScope inner(box.device(0).type(), at::kHalf);
      (void)at::mm(x, weight);
    }
    EXPECT_EQ(allocated() - before, 512 * 512 * 2);  // the weight's half
    (void)at::mm(x, weight);
    EXPECT_EQ(allocated() - before, 512 * 512 * 2);
  }
  EXPECT_EQ(allocated(), before);
}

TEST(Autocast, IsOffAgainAfterItsScope) {
  const auto sim = c10::DeviceType::PrivateUse1;
  const bool before = at::autocast::is_autocast_enabled(sim);
  {
    const AutocastScope scope(sim, at::kBFloat16);
    EXPECT_TRUE(at::autocast::is_autocast_enabled(sim));
    const AutocastScope off(sim, at::kBFloat16, false);
    EXPECT_FALSE(at::autocast::is_autocast_enabled(sim));
  }
  EXPECT_EQ(at::autocast::is_autocast_enabled(sim), before);
}

Computation mixed_step(at::ScalarType type) {
  return [type](torch::Device device) {
    const auto put = [&](at::IntArrayRef sizes, float by) {
      const std::int64_t n = c10::multiply_integers(sizes);
      return (torch::arange(n, at::kFloat) * by).sin().reshape(sizes).to(device);
    };
    const Tensor x = put({8, 16}, 0.1F);
    // One weight: autocast drops several in the order of their addresses.
    const Tensor w = put({16, 16}, 0.2F).set_requires_grad(true);
    Tensor loss;
    {
      const AutocastScope scope(device.type(), type);
      loss = at::mse_loss(at::relu(at::linear(x, w)), x);
    }
    loss.backward();
    return std::vector<Tensor>{loss, w.grad()};
  };
}

// Under the CPU's rules its lists hold, so the numbers are the CPU's.
TEST(Autocast, GivesTheCpusNumbersUnderItsRules) {
  expect_as_on_cpu(mixed_step(at::kBFloat16), {.rules = Rules::cpu});
}

TEST(GradScaler, ChecksAndUnscalesGradients) {
  expect_as_on_cpu([](torch::Device device) {
    std::vector<Tensor> gradients{torch::ones({4}).to(device), (torch::ones({3}) / 0).to(device)};
    Tensor found = torch::zeros({1}).to(device);
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found,
                                                   torch::full({1}, 0.5F).to(device));
    return std::vector<Tensor>{gradients[0], found};
  });
}

TEST(GradScaler, MovesTheScale) {
  expect_as_on_cpu([](torch::Device device) {
    Tensor scale = torch::full({}, 65536.0F).to(device);
    Tensor good_steps = torch::zeros({}, at::kInt).to(device);
    at::_amp_update_scale_(scale, good_steps, torch::ones({1}).to(device), 2.0, 0.5, 2000);
    return std::vector<Tensor>{scale, good_steps};
  });
}

}  // namespace
}  // namespace headroom::sim

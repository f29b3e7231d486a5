// The memory that CUDA's kernels keep and need besides their results, byte by byte.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/sim/simulate.h"

namespace headroom::sim {
namespace {

using at::Tensor;

class NnMemory : public ::testing::Test {
 protected:
  [[nodiscard]] Card& card() const { return box_.card(0); }
  [[nodiscard]] at::TensorOptions on_card(at::ScalarType type = at::kFloat) const {
    return at::TensorOptions(type).device(card().device());
  }
  // The bytes of these tensors' storages.
  static std::int64_t bytes(std::initializer_list<Tensor> tensors) {
    std::int64_t sum = 0;
    for (const Tensor& tensor : tensors)
      sum += static_cast<std::int64_t>(tensor.storage().nbytes());
    return sum;
  }
  // The most that was taken at once on top of what was there.
  template <typename Function>
  std::int64_t most_on_top(const Function& function) {
    card().reset_peaks();
    const auto before = card().statistics().requested_bytes.all.current;
    function();
    return card().statistics().requested_bytes.all.peak - before;
  }

 private:
  Simulation box_ = simulate("1x4GiB");
};

TEST_F(NnMemory, DropoutKeepsAMaskOfOneByteAnElement) {
  const Tensor x = at::empty({64, 32}, on_card());
  EXPECT_EQ(bytes({std::get<1>(at::native_dropout(x, 0.1, true))}), 64 * 32);
  card().set_rules(Rules::cpu);
  EXPECT_EQ(bytes({std::get<1>(at::native_dropout(x, 0.1, true))}), 64 * 32 * 4);
}

TEST_F(NnMemory, LayerNormOfBfloat16KeepsFloats) {
  const Tensor x = at::empty({64, 32}, on_card(at::kBFloat16));
  const auto kept = [&] {
    const auto [out, mean, rstd] = at::native_layer_norm(x, 32, {}, {}, 1e-5);
    return bytes({mean, rstd});
  };
  EXPECT_EQ(kept(), 2 * 64 * 4);
  card().set_rules(Rules::cpu);
  EXPECT_EQ(kept(), 2 * 64 * 2);
}

// Every 32 rows are summed on their own, to one row of partial gradients.
// Source: aten/src/ATen/native/cuda/layer_norm_kernel.cu.
TEST_F(NnMemory, LayerNormSumsManyShortRowsInTwoPasses) {
  const Tensor x = at::empty({65537, 64}, on_card()), weight = at::empty({64}, on_card());
  const auto normed = at::native_layer_norm(x, 64, weight, weight, 1e-5);
  const auto needs = [&] {
    return most_on_top([&] {
      (void)at::native_layer_norm_backward(x, x, 64, std::get<1>(normed), std::get<2>(normed),
                                           weight, weight, {false, true, true});
    });
  };
  constexpr std::int64_t kRows = 2049;  // of 32 rows each
  EXPECT_EQ(needs(), 2 * kRows * 64 * 4 + 3 * 64 * 4);
  card().set_rules(Rules::cpu);
  EXPECT_EQ(needs(), 2 * 64 * 4);
}

TEST_F(NnMemory, BatchNormInEvaluationKeepsStatisticsOnlyWithoutCudnn) {
  const auto kept = [&](at::ScalarType type) {
    const Tensor x = at::empty({4, 8, 5, 5}, on_card(type)), one = at::empty({8}, on_card());
    const auto [out, mean, rstd] = at::native_batch_norm(x, one, one, one, one, false, 0.1, 1e-5);
    return bytes({mean, rstd});
  };
  EXPECT_EQ(kept(at::kFloat), 0);
  EXPECT_EQ(kept(at::kBFloat16), 2 * 8 * 4);
  card().set_rules(Rules::cpu);
  EXPECT_EQ(kept(at::kBFloat16), 0);
}

TEST_F(NnMemory, LogSigmoidKeepsNoBuffer) {
  const Tensor x = at::empty({64, 32}, on_card());
  EXPECT_EQ(bytes({std::get<1>(at::log_sigmoid_forward(x))}), 0);
  card().set_rules(Rules::cpu);
  EXPECT_EQ(bytes({std::get<1>(at::log_sigmoid_forward(x))}), 64 * 32 * 4);
}

TEST_F(NnMemory, SoftmaxBackwardTakesATemporaryProduct) {
  const Tensor x = at::empty({64, 32}, on_card());
  const auto needs = [&] {
    return most_on_top([&] { (void)at::_softmax_backward_data(x, x, 1, at::kFloat); });
  };
  EXPECT_EQ(needs(), 2 * 64 * 32 * 4);
  card().set_rules(Rules::cpu);
  EXPECT_EQ(needs(), 64 * 32 * 4);
}

// Autocast to half asks for float here: CUDA's kernel reads half, the CPU's needs a copy first.
// As a CTC loss gives it, which takes time before rows.
TEST_F(NnMemory, ASoftmaxCopiesWhatIsNotContiguous) {
  const Tensor plain = at::empty({64, 32}, on_card()), turned = at::empty({32, 64}, on_card()).t();
  constexpr std::int64_t kOne = 64 * 32 * 4;
  for (const Rules rules : {Rules::cuda, Rules::cpu}) {
    card().set_rules(rules);
    EXPECT_EQ(most_on_top([&] { (void)at::_log_softmax(plain, 1, false); }), kOne);
    EXPECT_EQ(most_on_top([&] { (void)at::_log_softmax(turned, 1, false); }), 2 * kOne);
    EXPECT_EQ(most_on_top([&] { (void)at::_softmax(turned, 1, false); }), 2 * kOne);
    const auto backward = [&](const Tensor& gradient) {
      (void)at::_log_softmax_backward_data(gradient, plain, 1, at::kFloat);
    };
    EXPECT_EQ(most_on_top([&] { backward(plain); }), kOne);
    EXPECT_EQ(most_on_top([&] { backward(turned); }), 2 * kOne);
  }
}

TEST_F(NnMemory, SoftmaxFromHalfToFloatTakesNoCopy) {
  const Tensor x = at::empty({64, 32}, on_card(at::kHalf));
  const auto needs = [&](const auto& softmax) {
    return most_on_top([&] { (void)softmax(x, 1, at::kFloat); });
  };
  const auto plain = [](const Tensor& a, std::int64_t dim, at::ScalarType type) {
    return at::softmax(a, dim, type);
  };
  const auto logarithm = [](const Tensor& a, std::int64_t dim, at::ScalarType type) {
    return at::log_softmax(a, dim, type);
  };
  EXPECT_EQ(needs(plain), 64 * 32 * 4);
  EXPECT_EQ(needs(logarithm), 64 * 32 * 4);
  card().set_rules(Rules::cpu);
  EXPECT_EQ(needs(plain), 2 * 64 * 32 * 4);
  EXPECT_EQ(needs(logarithm), 2 * 64 * 32 * 4);
}

// CUDA keeps a number a row for the backward pass; on the CPU autograd keeps what it is made of.
TEST_F(NnMemory, RmsNormIsComposedOnTheCpu) {
  const Tensor x = torch::empty({64, 32}, on_card().requires_grad(true));
  const Tensor weight = torch::empty({32}, on_card().requires_grad(true));
  const auto kept = [&] {
    const auto before = card().statistics().requested_bytes.all.current;
    const Tensor y = at::rms_norm(x, {32}, weight);
    return card().statistics().requested_bytes.all.current - before;
  };
  constexpr std::int64_t kResult = 64 * 32 * 4, kDeviation = 64 * 4;
  EXPECT_EQ(kept(), kResult + kDeviation);
  card().set_rules(Rules::cpu);
  EXPECT_EQ(kept(), 2 * kResult + kDeviation);  // and what the weight was multiplied with
}

TEST_F(NnMemory, ALearnableFakeQuantisationMakesAMask) {
  const Tensor x = at::empty({64, 32}, on_card()), one = at::ones({1}, on_card());
  EXPECT_EQ(most_on_top(
                [&] { (void)at::_fake_quantize_learnable_per_tensor_affine(x, one, one, 0, 255); }),
            64 * 32 * (4 + 1));
}

TEST_F(NnMemory, DrawingWithoutReplacementTakesNoiseAndTheLargest) {
  const Tensor weights = at::empty({4, 100}, on_card());
  EXPECT_EQ(most_on_top([&] { (void)at::multinomial(weights, 10); }),
            4 * 10 * 8 + 4 * 100 * 4 + 4 * 10 * 4);
}

TEST_F(NnMemory, WeightNormOfHalfKeepsFloats) {
  const Tensor v = at::empty({64, 32}, on_card(at::kBFloat16)), g = v.slice(1, 0, 1).contiguous();
  EXPECT_EQ(bytes({std::get<1>(at::_weight_norm_interface(v, g, 0))}), 64 * 4);
}

TEST_F(NnMemory, ALeastSquaresSolutionKeepsTheMemoryOfItsResiduals) {
  const Tensor a = at::empty({50, 3}, on_card()), b = at::empty({50, 2}, on_card());
  const auto sizes = [&] {
    const auto [solution, residuals, rank, values] = at::linalg_lstsq(a, b);
    return std::vector<std::int64_t>{bytes({solution}), residuals.numel(), rank.numel()};
  };
  EXPECT_THAT(sizes(), ::testing::ElementsAre(50 * 2 * 4, 2, 0));
  card().set_rules(Rules::cpu);
  EXPECT_THAT(sizes(), ::testing::ElementsAre(50 * 2 * 4, 0, 1));
}

TEST_F(NnMemory, AMeanSquaredErrorKeepsMemoryAsLargeAsItsInput) {
  const Tensor x = at::empty({64, 32}, on_card());
  Tensor loss;
  EXPECT_EQ(most_on_top([&] { loss = at::mse_loss(x, x); }), 2 * 64 * 32 * 4);
  EXPECT_EQ(loss.dim(), 0);
  EXPECT_EQ(bytes({loss}), 64 * 32 * 4);
}

TEST_F(NnMemory, FoldKeepsTheMemoryOfItsColumns) {
  const Tensor columns = at::empty({2, 12, 42}, on_card());
  const Tensor image = at::col2im(columns, {7, 8}, {2, 2}, {1, 1}, {0, 0}, {1, 1});
  EXPECT_LT(image.numel(), columns.numel());
  EXPECT_EQ(bytes({image}), columns.numel() * 4);
}

TEST_F(NnMemory, AConvolutionCopiesAWeightInAnotherFormat) {
  const auto last = at::MemoryFormat::ChannelsLast;
  const Tensor x = at::empty({2, 16, 8, 8}, on_card(), last);
  const Tensor weight = at::empty({16, 16, 3, 3}, on_card());
  Tensor out;
  const std::int64_t top = most_on_top([&] { out = at::conv2d(x, weight, {}, 1, 1); });
  EXPECT_TRUE(out.is_contiguous(last));
  EXPECT_EQ(top, (out.numel() + weight.numel()) * 4);
}

TEST_F(NnMemory, AConvolutionOfDoublesIsContiguous) {
  const Tensor x = at::empty({2, 4, 8, 8}, on_card(at::kDouble), at::MemoryFormat::ChannelsLast);
  const Tensor weight = at::empty({4, 4, 3, 3}, on_card(at::kDouble));
  EXPECT_TRUE(at::conv2d(x, weight).is_contiguous());
}

TEST_F(NnMemory, AWrongNumberOfChannelsIsRefusedInPytorchsWords) {
  const Tensor x = at::empty({2, 3, 8, 8}, on_card()), weight = at::empty({4, 5, 3, 3}, on_card());
  const auto says = [](auto function) -> std::string {
    try {
      function();
      return "";
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
  };
  EXPECT_THAT(says([&] { (void)at::conv2d(x, weight); }),
              ::testing::HasSubstr("to have 5 channels, but got 3 channels instead"));
  EXPECT_THAT(says([&] { (void)at::layer_norm(x, 7); }),
              ::testing::HasSubstr("expected input with shape [*, 7]"));
}

TEST_F(NnMemory, UnknownLengthsOfTargetsCountAsTheLongestPossible) {
  const Tensor log_probs = at::empty({9, 2, 7}, on_card());
  const Tensor targets = at::empty({2, 4}, on_card(at::kLong));
  const auto alpha = [&](const auto& lengths) {
    return std::get<1>(at::_ctc_loss(log_probs, targets, {9, 9}, lengths)).sizes().vec();
  };
  EXPECT_THAT(alpha(std::vector<std::int64_t>{3, 2}), ::testing::ElementsAre(2, 9, 7));
  EXPECT_THAT(alpha(std::vector<std::int64_t>{0, 0}), ::testing::ElementsAre(2, 9, 9));
}

}  // namespace
}  // namespace headroom::sim

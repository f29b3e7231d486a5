// Peaks counted on paper: PyTorch's rules in three small nets, line by line, in bytes as asked for.
#include <gmock/gmock.h>

#include <functional>

#include "tests/peers/calls.h"
#include "tests/peers/measure.h"

namespace headroom::nets {
namespace {

constexpr std::int64_t kFloat = 4, kLong = 8;

// Two layers, 64 inputs -> 128 -> 10, and a batch of 32.
Case two_layers(const std::string& optimizer) {
  return {"mlp",
          "mlp",
          Precision::fp32,
          optimizer,
          {{"input", 64}, {"width", 128}, {"layers", 2}, {"classes", 10}, {"batch", 32}}};
}
constexpr std::int64_t kFirst = (64 * 128 + 128) * kFloat;      // weight and bias: 33,280
constexpr std::int64_t kSecond = (128 * 10 + 10) * kFloat;      // 5,160
constexpr std::int64_t kParameters = kFirst + kSecond;          // 38,440
constexpr std::int64_t kBatch = 32 * 64 * kFloat + 32 * kLong;  // 8,448
constexpr std::int64_t kHidden = 32 * 128 * kFloat;             // 16,384

TEST(ByHand, TwoLayersAndSgd) {
  // Forward keeps relu's result, log_softmax's (1,280), nll_loss's total weight and the loss (4
  // each): less than half of what backward needs, where the loss and its gradient, a one, live to
  // the end.
  const std::int64_t scalars = 2 * kFloat;
  // At relu's backward live the second layer's gradients, relu's result, the gradient of that, and
  // the gradient of relu's argument, which is being made.
  const std::int64_t at_relu = kSecond + 3 * kHidden;
  EXPECT_EQ(at_relu, 54'312);
  // Then relu's result and its gradient go; the gradient of its argument stays until the first
  // layer's weight and bias have theirs.
  const std::int64_t at_the_end = kSecond + kHidden + kFirst;
  EXPECT_EQ(at_the_end, 54'824);
  // SGD needs nothing besides.
  EXPECT_EQ(peak_bytes(two_layers("sgd"), sim::Rules::cpu, 1),
            kParameters + kBatch + scalars + at_the_end);  // 101,720
}

TEST(ByHand, TwoLayersAndTheSecondStepOfAdamW) {
  // Two moments of each parameter came with the first step; the step counts are on the host.
  const std::int64_t moments = 2 * kParameters;
  // After backward the gradients are there, and the loss.
  const std::int64_t before = kParameters + moments + kParameters + kBatch + kFloat;
  // The loop makes the root of a second moment and, beside it, the root divided: twice the first
  // layer's weight. For the later, smaller parameters one of that size is left from before: less.
  const std::int64_t roots = 2 * 64 * 128 * kFloat;
  EXPECT_EQ(roots, 65'536);
  // More than backward's 54,824 + 4 beside the parameters, where gradients are not all there yet.
  EXPECT_EQ(peak_bytes(two_layers("adamw_loop"), sim::Rules::cpu, 2), before + roots);  // 227,748
}

TEST(ByHand, AWeightThatIsEmbeddingAndHead) {
  const sim::Simulation box = roomy_card(sim::Rules::cpu);
  const auto on_card = torch::device(box.device(0));
  const Tensor weight = torch::zeros({1000, 64}, on_card.requires_grad(true));
  const Tensor tokens = torch::zeros({16}, on_card.dtype(torch::kLong).requires_grad(false));
  box.card(0).reset_peaks();
  const Tensor loss = [&] {
    const Tensor x = torch::embedding(weight, tokens);
    return torch::cross_entropy_loss(torch::linear(x, weight), tokens);
  }();
  loss.backward();
  const std::int64_t of_weight = 1000 * 64 * kFloat;  // 256,000
  const std::int64_t scalars = 2 * kFloat;            // the loss and its gradient
  // The head's backward makes the weight's first gradient, the embedding's the second, and autograd
  // their sum beside both (below: why not in the first).
  const std::int64_t first = of_weight, second = of_weight, sum = of_weight;
  EXPECT_EQ(box.card(0).statistics().requested_bytes.all.peak,
            of_weight + 16 * kLong + scalars + first + second + sum);  // 1,024,136
}

// ---- When gradients of one tensor are summed in place
//
// Autograd adds a later gradient to the first one in place only if no other owner holds the first
// one's storage (input_buffer.cpp, can_accumulate_inplace). A view's base holds it: so it depends
// on whether the first gradient to arrive is a view. That of a linear layer's weight is one, a
// transposed product (the layer's forward transposes the weight); an embedding's is not.

// The operator that sums the two gradients of a weight in backward.
std::string sum_of_gradients(const std::function<Tensor(const Tensor&, const Tensor&)>& loss_of) {
  const sim::Simulation box = roomy_card(sim::Rules::cpu);
  const auto on_card = torch::device(box.device(0));
  const Tensor weight = torch::zeros({1000, 64}, on_card.requires_grad(true));
  const Tensor tokens = torch::zeros({16}, on_card.dtype(torch::kLong).requires_grad(false));
  const Tensor loss = loss_of(weight, tokens);
  Calls calls(0);
  box.card(0).observe(&calls);
  loss.backward();
  box.card(0).observe(nullptr);
  std::string sums;
  for (const Call& call : calls.all())
    if (call.name.starts_with("aten::add")) sums += call.name + ";";
  return sums;
}

TEST(SumOfGradients, OfAnEmbeddingAndAHeadIsANewTensor) {
  EXPECT_EQ(sum_of_gradients([](const Tensor& weight, const Tensor& tokens) {
              return torch::linear(torch::embedding(weight, tokens), weight).sum();
            }),
            "aten::add.Tensor;");
}

TEST(SumOfGradients, OfTwoEmbeddingsIsMadeInPlace) {
  EXPECT_EQ(sum_of_gradients([](const Tensor& weight, const Tensor& tokens) {
              const Tensor x = torch::embedding(weight, tokens).sum();
              return x * torch::embedding(weight, tokens).sum();
            }),
            "aten::add_.Tensor;");
}

// Not transposed, but a view: the later embedding's gradient is the first to arrive.
TEST(SumOfGradients, IsANewTensorWhereTheFirstIsAView) {
  EXPECT_EQ(sum_of_gradients([](const Tensor& weight, const Tensor& tokens) {
              const Tensor x = torch::embedding(weight, tokens).sum();
              return x * torch::embedding(weight.view({64, 1000}), tokens).sum();
            }),
            "aten::add.Tensor;");
}

TEST(SumOfGradients, IsMadeInPlaceWhereOnlyTheSecondIsAView) {
  EXPECT_EQ(sum_of_gradients([](const Tensor& weight, const Tensor& tokens) {
              const Tensor x = torch::embedding(weight.view({64, 1000}), tokens).sum();
              return x * torch::embedding(weight, tokens).sum();
            }),
            "aten::add_.Tensor;");
}

}  // namespace
}  // namespace headroom::nets

#include "headroom/nn/fused_loss.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>

#include "headroom/base/error.h"
#include "headroom/libtorch/autocast.h"
#include "headroom/nn/checkpoint.h"
#include "headroom/nn/lora.h"
#include "headroom/nn/offload.h"
#include "headroom/sim/simulate.h"
#include "tests/nn/tiny_models.h"

namespace headroom::nn {
namespace {

using torch::Tensor;

// A head over 311 classes and 30 rows of width 24 (or more), four of which do not count.
struct Case {
  explicit Case(torch::Dtype type = torch::kFloat, c10::Device device = torch::kCPU,
                std::int64_t length = 15) {
    torch::manual_seed(4);
    const auto leaf = [&](const Tensor& x) {
      return x.to(type).to(device).detach().requires_grad_();
    };
    weight = leaf(torch::randn({311, 24}));
    bias = leaf(torch::randn({311}));
    states = leaf(torch::randn({2, length, 24}));
    labels = torch::randint(311, {2, length});
    labels.view(-1).slice(0, 4, 8).fill_(-100);
    labels = labels.to(device);
  }

  [[nodiscard]] Tensor logits() const { return torch::linear(states, weight, bias); }
  [[nodiscard]] Tensor plain(const FusedLossOptions& options = {}) const {
    return at::cross_entropy_loss(logits().view({-1, 311}), labels.reshape(-1), {},
                                  options.sum ? at::Reduction::Sum : at::Reduction::Mean,
                                  options.ignored, options.smoothing);
  }
  [[nodiscard]] Tensor fused(const FusedLossOptions& options = {}) const {
    return fused_cross_entropy({.weight = weight, .bias = bias}, states, labels, options);
  }
  // Of states, weight and bias, which it takes away.
  std::vector<Tensor> gradients() {
    std::vector<Tensor> all;
    for (Tensor* const leaf : {&states, &weight, &bias}) {
      all.push_back(leaf->grad());
      leaf->mutable_grad().reset();
    }
    return all;
  }

  Tensor weight, bias, states, labels;
};

double distance(const Tensor& one, const Tensor& other) {
  const Tensor a = one.to(torch::kDouble), b = other.to(torch::kDouble);
  return ((a - b).norm() / b.norm()).item<double>();
}

void expect_equal_gradients(Case& of, const FusedLossOptions& options) {
  const Tensor plain = of.plain(options);
  (plain * 0.7).backward();
  const std::vector<Tensor> expected = of.gradients();
  const Tensor fused = of.fused(options);
  (fused * 0.7).backward();
  const std::vector<Tensor> found = of.gradients();
  EXPECT_LE(distance(fused, plain), 1e-6);
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_LE(distance(found[i], expected[i]), 1e-5) << "rows " << options.rows << ", " << i;
}

TEST(FusedCrossEntropy, GivesLossAndGradientsOfPytorchs) {
  Case of;
  for (const std::int64_t rows : {0, 1, 7, 30, 99}) {
    expect_equal_gradients(of, {.rows = rows});
    expect_equal_gradients(of, {.rows = rows, .smoothing = 0.1});
    expect_equal_gradients(of, {.rows = rows, .smoothing = 1, .sum = true});
  }
  of.labels.masked_fill_(of.labels == -100, 5);
  expect_equal_gradients(of, {.rows = 7, .ignored = 5});
  Case in_double(torch::kDouble);
  expect_equal_gradients(in_double, {});
}

TEST(FusedCrossEntropy, OfIgnoredLabelsOnlyIsNotANumberAndHasNoGradients) {
  Case of;
  of.labels.fill_(-100);
  const Tensor loss = of.fused();
  EXPECT_TRUE(std::isnan(loss.item<double>()));
  loss.backward();
  for (const Tensor& gradient : of.gradients()) EXPECT_EQ(gradient.abs().sum().item<double>(), 0);
  EXPECT_EQ(of.fused({.sum = true}).item<double>(), 0);
}

// Beside float64. The weight's gradient is rounded once a block, four times here; the plain one
// once. So its error may be a tenth larger. The second case is a trained head, which is sure of its
// classes.
TEST(FusedCrossEntropy, InHalfPrecisionIsAsExactAsThePlainOne) {
  for (const torch::Dtype type : {torch::kBFloat16, torch::kHalf})
    for (const bool is_sure : {false, true}) {
      Case half(type, torch::kCPU, 64), exact(torch::kDouble, torch::kCPU, 64);
      if (is_sure) half.labels = half.logits().argmax(-1);
      exact.labels = half.labels;
      for (const auto& [to, from] :
           {std::pair(&exact.states, &half.states), std::pair(&exact.weight, &half.weight),
            std::pair(&exact.bias, &half.bias)})
        *to = from->detach().to(torch::kDouble).requires_grad_();
      exact.plain().backward();
      const std::vector<Tensor> expected = exact.gradients();
      half.plain().backward();
      const std::vector<Tensor> plain = half.gradients();
      const Tensor loss = half.fused();
      EXPECT_EQ(loss.scalar_type(), torch::kFloat);
      loss.backward();
      const std::vector<Tensor> fused = half.gradients();
      for (std::size_t i = 0; i < fused.size(); ++i) {
        EXPECT_EQ(fused[i].scalar_type(), type);
        EXPECT_LE(distance(fused[i], expected[i]),
                  (i == 1 ? 1.1 : 1.0) * distance(plain[i], expected[i]))
            << type << i << is_sure;
      }
    }
}

TEST(FusedCrossEntropy, MakesOnlyTheGradientsThatAreNeeded) {
  Case of;
  of.fused().backward();
  const std::vector<Tensor> all = of.gradients();
  const auto expect_without = [&](Tensor Case::*frozen) {
    (of.*frozen).set_requires_grad(false);
    of.fused().backward();
    (of.*frozen).set_requires_grad(true);
    const std::vector<Tensor> found = of.gradients();
    const std::vector<bool> is_frozen = {frozen == &Case::states, frozen == &Case::weight,
                                         frozen == &Case::bias};
    for (std::size_t i = 0; i < found.size(); ++i)
      if (is_frozen[i])
        EXPECT_FALSE(found[i].defined()) << i;
      else
        EXPECT_LE(distance(found[i], all[i]), 1e-6) << i;
  };
  for (Tensor Case::*const frozen : {&Case::states, &Case::weight, &Case::bias})
    expect_without(frozen);
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(of.fused().requires_grad());
  EXPECT_LE(distance(of.fused(), of.plain()), 1e-6);
}

TEST(FusedCrossEntropy, AddsToTheGradientOfATiedEmbedding) {
  Case of;
  const Tensor tokens = torch::randint(311, {2, 15});
  const auto gradient = [&](bool fused) {
    of.states = torch::embedding(of.weight, tokens);
    (fused ? of.fused() : of.plain()).backward();
    return std::exchange(of.weight.mutable_grad(), Tensor());
  };
  const Tensor plain = gradient(false);
  EXPECT_LE(distance(gradient(true), plain), 1e-5);
}

TEST(FusedCrossEntropy, TakesStatesWeightAndLabelsInAnyLayout) {
  Case of;
  of.labels = of.labels.t().contiguous().t();
  const Tensor states = of.states, weight = of.weight;
  const auto gradients = [&](bool fused) {
    of.states = states.transpose(0, 2).contiguous().transpose(0, 2);
    of.weight = weight.t().contiguous().t();
    ((fused ? of.fused({.rows = 7}) : of.plain()) * 0.7).backward();
    return std::vector<Tensor>{std::exchange(states.mutable_grad(), Tensor()),
                               std::exchange(weight.mutable_grad(), Tensor())};
  };
  const std::vector<Tensor> plain = gradients(false), fused = gradients(true);
  for (std::size_t i = 0; i < fused.size(); ++i) EXPECT_LE(distance(fused[i], plain[i]), 1e-5) << i;
}

TEST(FusedCrossEntropy, RunsInsideACheckpointedPart) {
  Case of;
  const auto part = [&](const Tensor& states) {
    return fused_cross_entropy({.weight = of.weight, .bias = of.bias}, states.tanh(), of.labels);
  };
  part(of.states).backward();
  const std::vector<Tensor> expected = of.gradients();
  for (const Recompute how : {Recompute::nonreentrant, Recompute::reentrant}) {
    checkpointed(how, part, of.states).backward();
    const std::vector<Tensor> found = of.gradients();
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(found[i].equal(expected[i])) << i;
  }
}

// What the step saves before the loss leaves the card; the loss itself saves nothing.
TEST(FusedCrossEntropy, GoesWithOffload) {
  const sim::Simulation box = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  Case of(torch::kFloat, box.device(0));
  const Tensor inputs = of.states.detach().clone().requires_grad_();
  const auto gradients = [&](Bytes smallest, std::int64_t moved) {
    Offload offload({of.weight, of.bias}, {.smallest = smallest});
    Tensor loss;
    {
      const auto scope = offload.scope();
      of.states = inputs.sin();
      loss = of.fused();
    }
    EXPECT_EQ(offload.use().moved, moved);
    loss.backward();
    std::vector<Tensor> all = {std::exchange(inputs.mutable_grad(), Tensor())};
    for (const Tensor* const leaf : {&of.weight, &of.bias})
      all.push_back(std::exchange(leaf->mutable_grad(), Tensor()));
    return all;
  };
  const std::vector<Tensor> expected = gradients(Bytes{1 << 30}, 0), found = gradients(Bytes{1}, 1);
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_TRUE(found[i].cpu().equal(expected[i].cpu())) << i;
}

// An adapter and a cap, as functions of states and product.
TEST(FusedCrossEntropy, GivesGradientsToParametersBehindTheProduct) {
  Case of;
  const Tensor a = torch::randn({3, 24}).requires_grad_(),
               b = torch::randn({311, 3}).requires_grad_();
  const auto after = [&](const Tensor& x, const Tensor& product) {
    return 9 * torch::tanh((product + torch::linear(torch::linear(x, a), b) * 0.5) / 9);
  };
  const Tensor logits = after(of.states, torch::linear(of.states, of.weight, of.bias));
  at::cross_entropy_loss(logits.view({-1, 311}), of.labels.view(-1)).backward();
  std::vector<Tensor> expected = of.gradients();
  expected.insert(expected.end(), {a.grad().clone(), b.grad().clone()});
  a.mutable_grad().reset();
  b.mutable_grad().reset();
  const FusedHead head{.weight = of.weight, .bias = of.bias, .after = after, .parameters = {a, b}};
  fused_cross_entropy(head, of.states, of.labels, {.rows = 7}).backward();
  std::vector<Tensor> found = of.gradients();
  found.insert(found.end(), {a.grad(), b.grad()});
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_LE(distance(found[i], expected[i]), 1e-5);
}

// The adapter of a torch::nn layer follows its weight.
TEST(FusedCrossEntropy, TakesTheAdapterOfAPlainLinearLayer) {
  torch::manual_seed(4);
  torch::nn::Sequential net(torch::nn::Linear(24, 311));
  (void)add_lora(*net, {.rank = 2, .targets = {"0"}});
  for (Tensor& parameter : net->parameters()) torch::nn::init::normal_(parameter);
  auto& layer = *net->at<torch::nn::LinearImpl>(0).as<torch::nn::LinearImpl>();
  Case of;
  at::cross_entropy_loss(layer.forward(of.states).view({-1, 311}), of.labels.view(-1)).backward();
  std::vector<Tensor> expected = {of.states.grad().clone()};
  of.states.mutable_grad().reset();
  FusedHead head{.weight = layer.weight, .bias = layer.bias};
  EXPECT_THROW((void)fused_cross_entropy(head, of.states, of.labels), UsageError);
  for (const auto& child : layer.children())
    for (const Tensor& factor : child->parameters()) {
      head.parameters.push_back(factor);
      expected.push_back(factor.grad().clone());
      factor.mutable_grad().reset();
    }
  fused_cross_entropy(head, of.states, of.labels, {.rows = 7}).backward();
  EXPECT_LE(distance(of.states.grad(), expected[0]), 1e-5);
  ASSERT_EQ(expected.size(), 3U);
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_LE(distance(head.parameters[i].grad(), expected[i + 1]), 1e-5);
  EXPECT_FALSE(layer.weight.grad().defined());
}

TEST(FusedCrossEntropy, UnderAutocastSumsTheWeightsGradientInFloat) {
  Case of;
  of.plain().backward();
  const std::vector<Tensor> exact = of.gradients();
  const auto gradients = [&](auto loss_of) {
    Tensor loss;
    {
      const libtorch::AutocastScope scope(torch::kCPU, torch::kBFloat16);
      loss = loss_of();
    }
    loss.backward();
    return of.gradients();
  };
  const std::vector<Tensor> plain = gradients([&] { return of.plain(); });
  const std::vector<Tensor> fused = gradients([&] { return of.fused({.rows = 3}); });
  for (std::size_t i = 0; i < fused.size(); ++i) {
    EXPECT_EQ(fused[i].scalar_type(), torch::kFloat);
    EXPECT_LE(distance(fused[i], exact[i]), distance(plain[i], exact[i])) << i;
  }
}

TEST(FusedCrossEntropy, OnASimulatedCardEqualsTheCpuToTheBit) {
  const sim::Simulation box = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  for (const torch::Dtype type : {torch::kFloat, torch::kBFloat16}) {
    Case host(type), card(type, box.device(0));
    const Tensor on_host = host.fused({.smoothing = 0.1}), on_card = card.fused({.smoothing = 0.1});
    EXPECT_TRUE(on_card.cpu().equal(on_host));
    (on_host * 0.7).backward();
    (on_card * 0.7).backward();
    const std::vector<Tensor> expected = host.gradients(), found = card.gradients();
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_TRUE(found[i].cpu().equal(expected[i])) << type << i;
  }
}

TEST(FusedCrossEntropy, RunsBackwardOnce) {
  Case of;
  const Tensor loss = of.fused();
  loss.backward({}, true);
  EXPECT_THROW(loss.backward(), UsageError);
}

// Unlike the plain loss it would leave out a penalty on its gradient.
TEST(FusedCrossEntropy, RefusesSecondDerivatives) {
  const Case of;
  EXPECT_THROW((void)torch::autograd::grad({of.fused()}, {of.weight}, {}, true, true), UsageError);
}

// The blocks' graphs of an adapter end before the scope around the loss could apply to them.
TEST(FusedCrossEntropy, BlocksAreNotOffloadedOrPacked) {
  const Case of;
  const Tensor a = torch::randn({3, 24}).requires_grad_();
  int saved = 0;
  const FusedHead head{.weight = of.weight,
                       .after =
                           [&](const Tensor& x, const Tensor& product) {
                             return torch::tanh(product) + torch::linear(x, a).sum();
                           },
                       .parameters = {a}};
  const libtorch::SavedTensorScope scope([&](const Tensor& x) -> libtorch::Unpack {
    ++saved;
    return [x] { return x; };
  });
  fused_cross_entropy(head, of.states, of.labels, {.rows = 7}).backward();
  EXPECT_EQ(saved, 0);
  EXPECT_TRUE(a.grad().defined());
}

TEST(FusedCrossEntropy, RefusesInvalidArguments) {
  const Case of;
  EXPECT_THROW((void)of.fused({.rows = -1}), UsageError);
  EXPECT_THROW((void)of.fused({.smoothing = 1.5}), UsageError);
  const FusedHead head{.weight = of.weight};
  EXPECT_THROW((void)fused_cross_entropy(head, of.states, of.labels.slice(1, 1)), UsageError);
  EXPECT_THROW((void)fused_cross_entropy(head, of.states.slice(2, 1), of.labels), UsageError);
  EXPECT_THROW((void)fused_cross_entropy(head, of.states, of.labels.t()), UsageError);
  EXPECT_THROW((void)fused_cross_entropy(head, of.states, of.labels.to(at::kFloat)), UsageError);
  EXPECT_THROW((void)fused_cross_entropy(head, of.states.to(at::kDouble), of.labels), UsageError);
  EXPECT_THROW((void)fused_cross_entropy({}, of.states, of.labels), UsageError);
  EXPECT_THROW((void)fused_cross_entropy({.weight = of.weight, .bias = of.bias.slice(0, 1)},
                                         of.states, of.labels),
               UsageError);
}

// ---- Memory: the head of Llama 3.2 1B, 128256 classes of width 2048 ----

// The peak of one forward and backward pass in requested bytes, without hidden states, weight and
// their gradients.
std::int64_t bytes_beside(const sim::Simulation& box, torch::Dtype type, std::int64_t rows,
                          bool fused) {
  const auto options = torch::dtype(type).device(box.device(0));
  const Tensor weight = torch::empty({128256, 2048}, options).requires_grad_();
  const Tensor states = torch::empty({rows, 2048}, options).requires_grad_();
  const Tensor labels = torch::empty({rows}, options.dtype(torch::kLong));
  sim::Card& card = box.card(0);
  const std::int64_t before = card.statistics().requested_bytes.all.current;
  card.reset_peaks();
  if (fused)
    fused_cross_entropy({.weight = weight}, states, labels).backward();
  else
    at::cross_entropy_loss(torch::linear(states, weight), labels).backward();
  const std::int64_t peak = card.statistics().requested_bytes.all.peak - before;
  return peak - static_cast<std::int64_t>(weight.nbytes() + states.nbytes());
}

TEST(FusedCrossEntropy, TakesATenthOfThePlainLossBesideTheGradients) {
  const sim::Simulation box = sim::simulate("1x200GiB", {.cublas_workspaces = false});
  for (const torch::Dtype type : {torch::kFloat, torch::kBFloat16})
    for (const std::int64_t rows : {512, 1000, 1024, 2048, 4096, 8192}) {
      const std::int64_t plain = bytes_beside(box, type, rows, false);
      const std::int64_t fused = bytes_beside(box, type, rows, true);
      EXPECT_LE(fused * 10, plain) << type << ", " << rows << " rows";
    }
}

// ---- Published models ----

std::vector<Tensor> gradients_of_model(const std::string& type, const models::Settings& settings,
                                       bool adapts, bool mixed = false) {
  const auto model = tiny_model(type, settings);
  if (adapts) {
    (void)add_lora(model->module(), {.rank = 2, .targets = {"q_proj", "lm_head"}});
    torch::manual_seed(1);
    for (const auto& item : model->module().named_parameters())
      if (item.key().find("lora_B") != std::string::npos)
        torch::nn::init::normal_(item.value(), 0, 0.1);
  }
  return loss_and_gradients(*model, mixed);
}

TEST(FusedLoss, OfEveryFamilyIsTheFullOne) {
  for (const char* type : {"llama", "gpt2", "t5", "bert", "roberta", "distilbert", "gemma2", "phi",
                           "mixtral", "gpt_neo", "opt"})
    expect_close(gradients_of_model(type, {.fused_loss = true}, false),
                 gradients_of_model(type, {}, false), 1e-5, type);
}

TEST(FusedLoss, TrainsTheAdapterOfAHead) {
  for (const char* type : {"llama", "gemma2"})
    expect_close(gradients_of_model(type, {.fused_loss = true}, true),
                 gradients_of_model(type, {}, true), 1e-5, type);
}

TEST(FusedLoss, GoesWithCheckpointingAndAutocast) {
  for (const Recompute how : {Recompute::nonreentrant, Recompute::reentrant})
    for (const bool mixed : {false, true}) {
      models::Settings full;
      full.checkpointing.how = how;
      models::Settings fused = full;
      fused.fused_loss = true;
      expect_close(gradients_of_model("llama", fused, false, mixed),
                   gradients_of_model("llama", full, false, mixed), mixed ? 0.02 : 1e-5,
                   mixed ? "autocast" : "float32");
    }
}

TEST(FusedLoss, HasNoLogits) {
  const auto model = tiny_model("llama", {.fused_loss = true});
  EXPECT_FALSE(model->run(tiny_batch(*model)).logits.defined());
  models::Batch without = tiny_batch(*model);
  without.labels.reset();
  EXPECT_TRUE(model->run(without).logits.defined());
}

TEST(FusedLoss, IsRefusedWhereALossHasNoTokens) {
  EXPECT_THROW((void)tiny_model("vit", {.fused_loss = true}), UsageError);
  EXPECT_THROW((void)tiny_model("llama", {.loss_chunk = 4, .fused_loss = true}), UsageError);
}

}  // namespace
}  // namespace headroom::nn

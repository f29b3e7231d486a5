#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/libtorch/on.h"
#include "sides.h"

namespace headroom::sim {
namespace {

using ::testing::Contains;
using ::testing::Not;
using ::testing::Pair;
using torch::Tensor;

struct Attention {
  std::vector<std::int64_t> q{2, 4, 24, 16}, kv{2, 4, 24, 16};
  at::ScalarType type = at::kFloat;
  double dropout = 0;
  bool causal = false, grouped = false, gradients = true;
  std::function<Tensor()> mask = {};
  bool mask_gradient = false;
};

Tensor random(at::IntArrayRef sizes, at::ScalarType type, std::uint64_t seed) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed), at::kFloat).to(type);
}

// Output, and gradients of queries, keys, values and the mask.
Computation attention(const Attention& a) {
  return [a](torch::Device device) {
    const auto put = [&](const Tensor& x, bool gradient) {
      return x.to(device).set_requires_grad(gradient);
    };
    const Tensor q = put(random(a.q, a.type, 1), a.gradients),
                 k = put(random(a.kv, a.type, 2), a.gradients),
                 v = put(random(a.kv, a.type, 3), a.gradients);
    const Tensor mask = a.mask ? put(a.mask(), a.mask_gradient) : Tensor();
    const Tensor out = at::scaled_dot_product_attention(
        q, k, v, mask.defined() ? std::optional<Tensor>(mask) : std::nullopt, a.dropout, a.causal,
        std::nullopt, a.grouped);
    if (!a.gradients) return std::vector<Tensor>{out};
    out.backward(put(random(out.sizes(), a.type, 4), false));
    return std::vector<Tensor>{out, q.grad(), k.grad(), v.grad(),
                               a.mask_gradient ? mask.grad() : Tensor()};
  };
}

std::string chosen(const Attention& a, const std::string& spec, Rules rules = Rules::cuda) {
  const Simulation box = simulate(spec, {.rules = rules});
  const auto make = [&](at::IntArrayRef sizes) {
    return at::empty(sizes, at::TensorOptions(box.device(0)).dtype(a.type))
        .set_requires_grad(a.gradients);
  };
  const Tensor q = make(a.q), k = make(a.kv), v = make(a.kv);
  const auto mask = a.mask ? std::optional<Tensor>(a.mask().to(box.device(0))) : std::nullopt;
  switch (static_cast<at::SDPBackend>(
      at::_fused_sdp_choice(q, k, v, mask, a.dropout, a.causal, std::nullopt, a.grouped))) {
    case at::SDPBackend::math:
      return "math";
    case at::SDPBackend::flash_attention:
      return "flash";
    case at::SDPBackend::efficient_attention:
      return "memory_efficient";
    case at::SDPBackend::cudnn_attention:
      return "cudnn";
    default:
      return "other";
  }
}

Tensor bool_mask() {
  return (torch::arange(24 * 24).reshape({24, 24}) % 5) != 0;
}

// ---- Which kernel ----

TEST(AttentionChoice, IsFlashForHalfTypesOnAmpere) {
  EXPECT_EQ(chosen({.type = at::kBFloat16}, "1xRTX3090"), "flash");
  EXPECT_EQ(chosen({.type = at::kHalf, .causal = true}, "1xRTX4090"), "flash");
}

TEST(AttentionChoice, IsMemoryEfficientForFloatAndMasks) {
  EXPECT_EQ(chosen({}, "1xRTX4090"), "memory_efficient");
  EXPECT_EQ(chosen({.type = at::kHalf, .mask = bool_mask}, "1xRTX4090"), "memory_efficient");
}

TEST(AttentionChoice, IsMathForCallsThatNoKernelTakes) {
  EXPECT_EQ(chosen({.type = at::kDouble}, "1xRTX4090"), "math");
  EXPECT_EQ(chosen({.q = {2, 4, 24, 18}, .kv = {2, 4, 24, 18}}, "1xRTX4090"), "math");
  EXPECT_EQ(chosen({.q = {2, 4, 24, 16}, .kv = {2, 2, 24, 16}, .grouped = true}, "1xRTX4090"),
            "math");
}

TEST(AttentionChoice, TakesGroupedQueriesInFlash) {
  EXPECT_EQ(chosen({.q = {2, 4, 24, 16}, .kv = {2, 2, 24, 16}, .type = at::kHalf, .grouped = true},
                   "1xRTX4090"),
            "flash");
}

TEST(AttentionChoice, PrefersCudnnOnHopper) {
  EXPECT_EQ(chosen({.type = at::kBFloat16}, "1xH100"), "cudnn");
  EXPECT_EQ(chosen({.type = at::kBFloat16, .dropout = 0.1}, "1xH100"), "flash");
  EXPECT_EQ(chosen({.type = at::kBFloat16, .dropout = 0.125}, "1xH100"), "cudnn");
}

TEST(AttentionChoice, KnowsTheHeadSizesThatConsumerChipsCannotTrain) {
  const Attention wide{.q = {2, 4, 24, 200}, .kv = {2, 4, 24, 200}, .type = at::kHalf};
  EXPECT_EQ(chosen(wide, "1xRTX4090"), "memory_efficient");
  EXPECT_EQ(chosen(wide, "1xA100 80GB"), "flash");
}

TEST(AttentionChoice, WithoutAProfileIsThatOfAmpere) {
  EXPECT_EQ(chosen({.type = at::kBFloat16}, "1x8GiB"), "flash");
  EXPECT_EQ(chosen({}, "1x8GiB"), "memory_efficient");
}

TEST(AttentionChoice, UnderTheCpusRulesIsTheCpus) {
  EXPECT_EQ(chosen({}, "1xRTX4090", Rules::cpu), "flash");
  EXPECT_EQ(chosen({.dropout = 0.1}, "1xRTX4090", Rules::cpu), "math");
  EXPECT_EQ(chosen({.type = at::kDouble}, "1xRTX4090", Rules::cpu), "flash");
}

// ---- The CPU's numbers ----

TEST(Attention, GivesTheCpusNumbers) {
  expect_as_on_cpu(attention({}));
  expect_as_on_cpu(attention({.causal = true}));
  expect_as_on_cpu(attention({.type = at::kBFloat16, .causal = true}));
}

TEST(Attention, GivesTheCpusNumbersUnderAMask) {
  expect_as_on_cpu(attention({.mask = bool_mask}));
  expect_as_on_cpu(attention({.mask = [] { return random({2, 1, 24, 24}, at::kFloat, 5); }}));
}

TEST(Attention, GivesTheCpusNumbersForAMaskThatLearns) {
  expect_as_on_cpu(attention({.mask =
                                  [] {
                                    return random({2, 4, 24, 24}, at::kFloat, 5);
                                  },
                              .mask_gradient = true}));
}

// The CPU has no fused kernel with dropout and draws from its own generator.
TEST(Attention, DropsTheSameElementsAsTheCpu) {
  expect_as_on_cpu(attention({.dropout = 0.25, .causal = true}));
  expect_as_on_cpu(attention({.type = at::kBFloat16, .dropout = 0.25}));
  expect_as_on_cpu(attention({.type = at::kBFloat16, .dropout = 0.25}), {}, "1xH100");
}

TEST(Attention, PadsHeadsOnlyForFlash) {
  expect_as_on_cpu(attention({.q = {2, 4, 24, 20}, .kv = {2, 4, 24, 20}, .type = at::kBFloat16}));
}

TEST(Attention, GivesTheCpusNumbersForGroupedQueries) {
  expect_as_on_cpu(attention(
      {.q = {2, 4, 24, 16}, .kv = {2, 2, 24, 16}, .type = at::kBFloat16, .grouped = true}));
}

TEST(Attention, GivesTheCpusNumbersThroughCudnn) {
  expect_as_on_cpu(attention({.type = at::kBFloat16}), {}, "1xH100");
}

TEST(Attention, FollowsTheCpusRulesToTheBit) {
  const SimulationOptions cpu{.rules = Rules::cpu};
  expect_as_on_cpu(attention({}), cpu);
  expect_as_on_cpu(attention({.type = at::kDouble}), cpu);
  expect_as_on_cpu(attention({.dropout = 0.25}), cpu);
}

TEST(Attention, GivesTheCpusNumbersInInference) {
  expect_as_on_cpu(attention({.type = at::kBFloat16, .gradients = false}));
}

// ---- What is allocated ----

Side shapes_of(const Attention& a, const std::string& spec = "1xRTX4090") {
  return run_on_card(attention(a), {.cublas_workspaces = false}, spec);
}

// Forward: output, log-sum-exp of a float a query, two seeds of 8 and 16 bytes. Backward: two
// gradients in the inputs' type, the dots and the sum of queries' gradients in float, rounded up to
// 128 queries and 32 of head dimension. Counted by hand from flash_api.cpp.
TEST(FlashAttention, AllocatesTheSameTensorsAsItsKernel) {
  const Attention a{.q = {2, 4, 100, 16}, .kv = {2, 4, 100, 16}, .type = at::kHalf};
  const Requests requests = shapes_of(a).requests;
  const auto alloc = [](std::int64_t bytes) { return Pair("alloc", bytes); };
  EXPECT_THAT(requests, Contains(alloc(2 * 4 * 100 * 4)));             // log-sum-exp
  EXPECT_THAT(requests, Contains(alloc(16)));                          // seed and offset
  EXPECT_THAT(requests, Contains(alloc(2 * 4 * 128 * 4)));             // dots
  EXPECT_THAT(requests, Contains(alloc(2 * 4 * 128 * 32 * 4)));        // gradient of queries
  EXPECT_THAT(requests, Not(Contains(alloc(2 * 4 * 100 * 100 * 2))));  // no attention matrix
}

TEST(FlashAttention, SpreadsGradientsOfGroupedKeysOverAllHeads) {
  const Attention a{
      .q = {2, 8, 128, 32}, .kv = {2, 2, 128, 32}, .type = at::kHalf, .grouped = true};
  const Requests requests = shapes_of(a).requests;
  const auto wide = std::pair<std::string, std::int64_t>("alloc", 2 * 8 * 128 * 32 * 2);
  // Queries, output, their gradients, and keys' and values' gradients for each query head.
  EXPECT_GE(std::count(requests.begin(), requests.end(), wide), 6);
}

TEST(EfficientAttention, PadsItsStatisticsTo32Queries) {
  const Requests requests = shapes_of({.q = {2, 4, 40, 16}, .kv = {2, 4, 40, 16}}).requests;
  EXPECT_THAT(requests, Contains(Pair("alloc", 2 * 4 * 64 * 4)));
}

// A tile of 64 x 64 floats and 16 bytes for each block of 64 queries: kernel_backward.h.
TEST(EfficientAttention, TakesAWorkspaceForGradientsOfQueries) {
  const Requests requests = shapes_of({.q = {2, 4, 100, 64}, .kv = {2, 4, 100, 64}}).requests;
  EXPECT_THAT(requests, Contains(Pair("alloc", 2 * 4 * 2 * (16 + 64 * 64 * 4))));
}

TEST(EfficientAttention, NeedsNoStatisticsInInference) {
  const Requests requests = shapes_of({.gradients = false}).requests;
  EXPECT_THAT(requests, Not(Contains(Pair("alloc", 2 * 4 * 32 * 4))));
}

TEST(Attention, RefusesItsInnerOperators) {
  const Simulation box = simulate("1xRTX4090");
  const Tensor x = at::empty({2, 24, 4, 16}, at::TensorOptions(box.device(0)).dtype(at::kHalf));
  try {
    (void)at::_flash_attention_forward(x, x, x, {}, {}, 24, 24, 0.0, false, false);
    FAIL() << "it ran";
  } catch (const c10::NotImplementedError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("scaled_dot_product_attention"));
  }
}

// ---- Layers ----

// The same weights on each side: made on the CPU, copied over.
template <typename Module>
void copy_weights(const Module& from, Module& to) {
  const torch::NoGradGuard no_grad;
  auto target = to->named_parameters();
  for (const auto& item : from->named_parameters()) target[item.key()].copy_(item.value());
}

TEST(Attention, RunsInTheMultiheadLayer) {
  expect_as_on_cpu(
      [](torch::Device device) {
        torch::manual_seed(3);
        const torch::nn::MultiheadAttention reference(32, 4);
        auto net = libtorch::on(device, [] { return torch::nn::MultiheadAttention(32, 4); });
        copy_weights(reference, net);
        const Tensor x = random({10, 2, 32}, at::kFloat, 5).to(device).set_requires_grad(true);
        const auto [out, weights] = net->forward(x, x, x);
        out.sum().backward();
        return std::vector<Tensor>{out, weights, x.grad(), net->in_proj_weight.grad()};
      },
      {.cublas_workspaces = false});
}

void expect_transformer_as_on_cpu(std::int64_t target_length) {
  expect_as_on_cpu(
      [target_length](torch::Device device) {
        const auto make = [] {
          return torch::nn::Transformer(
              torch::nn::TransformerOptions(16, 2, 1, 1).dim_feedforward(24).dropout(0.0));
        };
        torch::manual_seed(3);
        const auto reference = make();
        auto net = libtorch::on(device, make);
        copy_weights(reference, net);
        const Tensor x = random({6, 2, 16}, at::kFloat, 5).to(device).set_requires_grad(true);
        const Tensor y = random({target_length, 2, 16}, at::kFloat, 5).to(device);
        const Tensor out = net->forward(x, y);
        out.sum().backward();
        return std::vector<Tensor>{out, x.grad()};
      },
      {.cublas_workspaces = false});
}

TEST(Attention, RunsInATransformer) {
  expect_transformer_as_on_cpu(5);
}

// The module asks whether query and key are equal; of one shape they are not yet.
TEST(Attention, RunsInATransformerOverSequencesOfEqualLength) {
  expect_transformer_as_on_cpu(6);
}

}  // namespace
}  // namespace headroom::sim

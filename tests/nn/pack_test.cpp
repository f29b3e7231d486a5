#include "headroom/nn/pack.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "headroom/libtorch/autocast.h"
#include "headroom/libtorch/modules.h"
#include "headroom/libtorch/on.h"
#include "headroom/models/batch.h"
#include "headroom/models/initialise.h"
#include "headroom/models/model.h"
#include "headroom/nn/checkpoint.h"
#include "headroom/nn/offload.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"

namespace headroom::nn {
namespace {

using torch::Tensor;

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kNumbers = 1 << 20;  // 4 MiB of floats

std::int64_t allocated(const sim::Simulation& box) {
  return box.card(0).statistics().allocated_bytes.all.current;
}
std::int64_t requested(const sim::Simulation& box) {
  return box.card(0).statistics().requested_bytes.all.current;
}

// The forward pass in a scope.
Tensor packed(const Pack& pack, const std::function<Tensor()>& forward) {
  const auto scope = pack.scope();
  return forward();
}

// The gradient of `function` at x, with what it saves packed.
Tensor gradient(const PackOptions& options, const Tensor& x,
                const std::function<Tensor(const Tensor&)>& function) {
  const Tensor leaf = x.detach().requires_grad_();
  packed(Pack({}, options), [&] { return function(leaf).sum(); }).backward();
  return leaf.grad();
}

double difference(const std::vector<Tensor>& these, const std::vector<Tensor>& exact) {
  double squares = 0, whole = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    squares += (these[i] - exact[i]).square().sum().item<double>();
    whole += exact[i].square().sum().item<double>();
  }
  return std::sqrt(squares / whole);
}

// ---- What is kept ----

class PackOnCard : public ::testing::TestWithParam<sim::Mode> {
 protected:
  // What the graph of `forward` keeps on the card, after its temporaries are gone.
  std::int64_t kept(const std::function<Tensor()>& forward, const PackOptions* options) {
    const std::int64_t before = requested(box);
    const Tensor loss = options == nullptr ? forward() : packed(Pack({y}, *options), forward);
    return requested(box) - before - static_cast<std::int64_t>(loss.nbytes());
  }
  const sim::Simulation box = sim::simulate("1x1GiB", {.mode = GetParam(), .check_streams = true});
  const Tensor y = torch::rand({kNumbers}).to(box.device(0)).requires_grad_();
  const PackOptions bf16{.to = PackTo::bf16}, int8{.to = PackTo::int8};
};

TEST_P(PackOnCard, KeepsAHalfOrAQuarterOfTheBytes) {
  const auto forward = [&] { return y.exp().exp().exp().sum(); };  // each saves its result
  EXPECT_EQ(kept(forward, nullptr), 3 * 4 * kMiB);
  EXPECT_EQ(kept(forward, &bf16), 3 * 2 * kMiB);
  EXPECT_EQ(kept(forward, &int8), 3 * (kMiB + kMiB / 256 * 4));
}

TEST_P(PackOnCard, PacksAStorageOnceForAllItsViews) {
  const auto forward = [&] {
    const Tensor z = y * 2;  // saves nothing
    return (z * z).sum() + z.view({1024, 1024}).t().slice(0, 3, 9).pow(3).sum();
  };
  EXPECT_EQ(kept(forward, &bf16), 2 * kMiB);
}

TEST_P(PackOnCard, LeavesWhatItShould) {
  const auto saving = [](const Tensor& z) { return [z] { return (z * z).sum(); }; };
  const auto stays = [&](const Tensor& z, PackOptions options) {
    const std::int64_t before = kept(saving(z), &options);
    return before == 0;  // no copy was made, and z lives anyway
  };
  const auto as = [&](at::ScalarType type) { return y.detach().to(type).requires_grad_(); };
  EXPECT_TRUE(stays(y, bf16)) << "given";
  EXPECT_TRUE(stays(y.slice(0, 1).view({-1, 3}), int8)) << "a view of what is given";
  EXPECT_TRUE(stays(as(at::kBFloat16), bf16));
  EXPECT_TRUE(stays(as(at::kHalf), bf16));
  EXPECT_FALSE(stays(as(at::kHalf), int8));
  EXPECT_FALSE(stays(as(at::kDouble), bf16));
  const Tensor other = as(at::kDouble);
  EXPECT_TRUE(stays(other, {.smallest = Bytes{8 * kMiB + 1}}));
  const Tensor index = torch::zeros({kNumbers}, y.options().dtype(at::kLong).requires_grad(false));
  const auto gathering = [&] { return y.gather(0, index).sum(); };
  EXPECT_EQ(kept(gathering, &int8), 0) << "not floating";
}

TEST_P(PackOnCard, HandsWhatItKeepsToTheScopeOutside) {
  const auto forward = [&] { return y.exp().exp().exp().sum(); };
  for (const auto& [options, bytes] : {std::pair(bf16, 6 * kMiB), std::pair(int8, 3 * kMiB)}) {
    Offload offload({y}, {.ahead = 0});
    const auto outside = offload.scope();
    EXPECT_EQ(kept(forward, &options), bytes == 6 * kMiB ? 0 : 3 * kMiB / 256 * 4)
        << "scales are too small to move";
    EXPECT_EQ(offload.use().peak_waiting.count, bytes);
    EXPECT_EQ(offload.use().waiting.count, 0);
  }
}

TEST_P(PackOnCard, HandsOnWhatItLeaves) {
  Offload offload({}, {.ahead = 0});
  const auto outside = offload.scope();
  const Tensor half = y.detach().to(at::kHalf).requires_grad_();
  const Tensor loss = packed(Pack({}, bf16), [&] { return half.exp().sum(); });
  EXPECT_EQ(offload.use().waiting.count, 2 * kMiB);
}

TEST_P(PackOnCard, PacksWhatAnOffloadInsideLeaves) {
  Offload offload({y}, {.budget = Bytes{4 * kMiB}, .ahead = 0});
  const auto forward = [&] {
    const auto inside = offload.scope();
    return y.exp().exp().exp().sum();
  };
  EXPECT_EQ(kept(forward, &bf16), 2 * 2 * kMiB) << "one of three moves";
}

TEST_P(PackOnCard, PacksTheInputsOfCheckpointedParts) {
  const auto part = [](const Tensor& x) { return x.exp().exp(); };
  for (const Recompute how : {Recompute::nonreentrant, Recompute::reentrant}) {
    const auto forward = [&] {
      return checkpointed(how, part, checkpointed(how, part, y * 2)).sum();
    };
    EXPECT_EQ(kept(forward, nullptr), 2 * 4 * kMiB);
    EXPECT_EQ(kept(forward, &bf16), 2 * 2 * kMiB);
    packed(Pack({y}, bf16), forward).backward();
  }
}

TEST_P(PackOnCard, UnpacksAStorageOnceForANodeThatNeedsItTwice) {
  const auto forward = [&] {
    const Tensor z = y * 2;
    return (z * z).sum();
  };
  const Tensor loss = packed(Pack({y}, bf16), forward);
  const std::int64_t before = allocated(box);
  box.card(0).reset_peaks();
  loss.backward();
  EXPECT_EQ((box.card(0).statistics().allocated_bytes.all.peak - before) / kMiB, 3 * 4)
      << "z, and a gradient for each factor";
}

TEST_P(PackOnCard, ACardThatIsFullWhilePackingLosesNothing) {
  const auto forward = [&] { return y.exp().exp().sum(); };
  const std::int64_t before = allocated(box);
  for (int k = 1; k < 30; ++k) {
    const sim::InjectionScope refusal(box, sim::once(static_cast<std::uint64_t>(k)));
    try {
      packed(Pack({y}, int8), forward).backward();
    } catch (const c10::OutOfMemoryError&) {
    }
    y.mutable_grad().reset();
    EXPECT_EQ(allocated(box), before) << k;
  }
  packed(Pack({y}, int8), forward).backward();
}

INSTANTIATE_TEST_SUITE_P(Pack, PackOnCard,
                         ::testing::Values(sim::Mode::shape_only, sim::Mode::compute),
                         [](const auto& mode) {
                           return mode.param == sim::Mode::compute ? "computed" : "shape_only";
                         });

// ---- Rounding ----

// The gradient of x * x / 2 is what was saved of x.
Tensor saved(const Tensor& x, const PackOptions& options) {
  return gradient(options, x, [](const Tensor& leaf) {
    const Tensor z = leaf * 1;
    return z * z / 2;
  });
}
constexpr PackOptions kAll8{.to = PackTo::int8, .smallest = Bytes{0}};
constexpr PackOptions kAll16{.to = PackTo::bf16, .smallest = Bytes{0}};

TEST(Pack, RoundsAsItSays) {
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf}) {
    const Tensor x = torch::randn({7, 1000}).to(type), flat = x.to(at::kDouble).flatten();
    const Tensor as16 = saved(x, kAll16), as8 = saved(x, kAll8);
    ASSERT_EQ(as16.scalar_type(), type);
    const Tensor off16 = (as16.to(at::kDouble) - x).abs();
    EXPECT_TRUE((off16 <= x.to(at::kDouble).abs() / 256).all().item<bool>());
    const Tensor off8 = (as8.to(at::kDouble).flatten() - flat).abs();
    const double rounding = type == at::kHalf ? 1e-3 : 1e-6;  // of the type itself
    for (std::int64_t row = 0; row < 7000; row += 256) {
      const double largest = flat.slice(0, row, row + 256).abs().max().item<double>();
      EXPECT_LE(off8.slice(0, row, row + 256).max().item<double>(),
                largest * (1 / 254.0 + rounding));
    }
    EXPECT_GT(off8.max().item<double>(), 0);
  }
}

TEST(Pack, KeepsZerosSmallNumbersAndSigns) {
  const Tensor x = torch::zeros({512});
  x[3] = -127, x[4] = 127, x[5] = 1, x[300] = 1e-30F;
  EXPECT_TRUE(saved(x, kAll8).allclose(x, 1e-6, 0));
  EXPECT_TRUE(saved(torch::zeros({300}), kAll8).equal(torch::zeros({300})));
  EXPECT_EQ(saved(torch::zeros({0}), kAll8).numel(), 0);
}

TEST(Pack, ShowsWhatIsNotFinite) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const Tensor x = torch::ones({1024});
    x[700] = bad;
    const Tensor row8 = saved(x, kAll8).slice(0, 512, 768), at16 = saved(x, kAll16);
    EXPECT_FALSE(row8.isfinite().any().item<bool>());
    EXPECT_FALSE(at16[700].isfinite().item<bool>());
    EXPECT_TRUE(saved(x, kAll8).slice(0, 0, 512).equal(torch::ones({512})));
  }
}

TEST(Pack, FollowsChangesInPlaceBetweenUses) {
  const Tensor x = torch::rand({512});
  const Tensor got = gradient(kAll16, x, [](const Tensor& leaf) {
    Tensor z = leaf * 1;
    const Tensor first = z.detach() * leaf;  // saves z
    z.detach().zero_();
    return first + z.detach() * leaf;  // saves z as it is now
  });
  EXPECT_TRUE(got.equal(x.to(at::kBFloat16).to(at::kFloat)));
}

TEST(Pack, ReportsAChangeInPlaceOfWhatItLeft) {
  const Tensor weight = torch::rand({512}).requires_grad_();
  const Tensor loss = packed(Pack({weight}, kAll16), [&] { return (weight * weight).sum(); });
  weight.detach().zero_();
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(Pack, RunsBackwardTwiceAndDoubleBackward) {
  const Tensor x = torch::rand({kNumbers}).requires_grad_();
  const Tensor loss = packed(Pack({}), [&] { return (x * 1).exp().sin().sum(); });
  loss.backward({}, /*retain_graph=*/true);
  const Tensor once = x.grad().clone();
  loss.backward();
  EXPECT_TRUE(x.grad().equal(once * 2));
  const Tensor cube = packed(Pack({}), [&] { return (x * 1).pow(3).sum(); });
  const Tensor first = torch::autograd::grad({cube}, {x}, {}, true, true)[0];
  const Tensor second = torch::autograd::grad({first.sum()}, {x})[0];
  EXPECT_TRUE(second.allclose(6 * x, 4e-3, 0));
}

TEST(Pack, PacksTheSameUnderAutocast) {
  const Tensor x = torch::rand({64, 64});
  const auto function = [](const Tensor& leaf) { return (leaf * 1).exp(); };
  const Tensor outside = gradient(kAll8, x, function);
  const libtorch::AutocastScope scope(at::kCPU, at::kBFloat16);
  EXPECT_TRUE(gradient(kAll8, x, function).equal(outside));
}

TEST(Pack, WorksInsideCheckpointedParts) {
  const auto part = [](const Tensor& x) {
    const auto scope = Pack({}, kAll16).scope();
    return (x * 1).exp().exp();
  };
  const Tensor x = torch::rand({64, 64});
  const auto with = [&](Recompute how) {
    const Tensor leaf = x.detach().requires_grad_();
    checkpointed(how, part, leaf).sum().backward();
    return leaf.grad();
  };
  EXPECT_TRUE(with(Recompute::nonreentrant).equal(with(Recompute::none)));
  EXPECT_TRUE(with(Recompute::reentrant).equal(with(Recompute::none)));
}

// ---- Gradients of models ----

struct NetImpl : torch::nn::Module {
  NetImpl()
      : first(register_module("first",
                              torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 32, 3).padding(1)))),
        norm(register_module("norm", torch::nn::BatchNorm2d(32))),
        second(register_module("second",
                               torch::nn::Conv2d(torch::nn::Conv2dOptions(32, 32, 3).stride(2)))),
        head(register_module("head", torch::nn::Linear(32 * 7 * 7, 10))) {}
  Tensor forward(const Tensor& x) {
    Tensor y = torch::gelu(norm(first(x)));
    y = torch::dropout(torch::relu(second(y)), 0.2, true);
    return torch::log_softmax(head(y.flatten(1)), 1).pow(2).mean();
  }
  torch::nn::Conv2d first;
  torch::nn::BatchNorm2d norm;
  torch::nn::Conv2d second;
  torch::nn::Linear head;
};
TORCH_MODULE(Net);

struct Subject {
  std::vector<Tensor> parameters;
  std::function<Tensor()> loss;
};

Subject own_module(c10::Device device) {
  torch::manual_seed(1);
  Net net;
  libtorch::move(*net, device);
  const Tensor x = torch::randn({4, 3, 16, 16}).to(device);
  return {net->parameters(), [net, x]() mutable { return net(x); }};
}

Subject gpt2(c10::Device device) {
  torch::manual_seed(1);
  const Json keys = {{"model_type", "gpt2"}, {"n_embd", 64},      {"n_head", 4},
                     {"n_layer", 3},         {"n_positions", 64}, {"vocab_size", 512}};
  const auto model = models::build(model::ModelConfig(keys, "a small gpt2"));
  models::initialise(*model);
  libtorch::move(model->module(), device);
  model->train();
  const auto batch = models::random_batch(*model, {.rows = 4, .length = 64}, device);
  return {model->module().parameters(), [model, batch] { return model->run(batch).loss; }};
}

struct Result {
  Tensor loss;
  std::vector<Tensor> gradients;
};

void seed(c10::Device device) {
  torch::manual_seed(5);
  if (!device.is_cpu()) at::Generator(sim::card_of(device)->generator()).set_current_seed(5);
}

Result step(const Subject& subject, c10::Device device, const Pack* pack) {
  seed(device);
  Result done{pack == nullptr ? subject.loss() : packed(*pack, subject.loss), {}};
  done.loss.backward();
  for (Tensor parameter : subject.parameters) {
    done.gradients.push_back(parameter.grad().cpu());
    parameter.mutable_grad().reset();
  }
  done.loss = done.loss.detach().cpu();
  return done;
}

struct Model {
  const char* name;
  Subject (*build)(c10::Device);
  double bound16, bound8;  // by measure, rounded up
};

class PackedModel : public ::testing::TestWithParam<std::tuple<Model, bool>> {};

TEST_P(PackedModel, HasTheSameLossAndNearlyTheSameGradients) {
  const auto& [model, on_card] = GetParam();
  std::optional<sim::Simulation> box;
  if (on_card) box = sim::simulate("1x4GiB", {.mode = sim::Mode::compute, .check_streams = true});
  const c10::Device device = on_card ? box->device(0) : c10::Device(at::kCPU);
  const Subject subject = model.build(device);
  const Result exact = step(subject, device, nullptr);
  for (const PackTo to : {PackTo::bf16, PackTo::int8}) {
    const Pack pack(subject.parameters, {.to = to, .smallest = Bytes{1024}});
    const Result rounded = step(subject, device, &pack);
    EXPECT_TRUE(rounded.loss.equal(exact.loss));
    const double off = difference(rounded.gradients, exact.gradients);
    RecordProperty(to == PackTo::bf16 ? "bf16" : "int8", std::to_string(off));
    EXPECT_GT(off, 1e-4);
    EXPECT_LT(off, to == PackTo::bf16 ? model.bound16 : model.bound8);
    Offload offload(subject.parameters, {.smallest = Bytes{1024}});
    const auto outside = offload.scope();
    const Result moved = step(subject, device, &pack);
    EXPECT_EQ(difference(moved.gradients, rounded.gradients), 0);
    EXPECT_EQ(offload.use().moved > 0, on_card);
  }
}

INSTANTIATE_TEST_SUITE_P(Pack, PackedModel,
                         ::testing::Combine(::testing::Values(Model{"gpt2", gpt2, 0.005, 0.02},
                                                              Model{"own", own_module, 0.005,
                                                                    0.03}),
                                            ::testing::Bool()),
                         [](const auto& with) {
                           return std::string(std::get<0>(with.param).name) +
                                  (std::get<1>(with.param) ? "_on_sim" : "_on_cpu");
                         });

}  // namespace
}  // namespace headroom::nn

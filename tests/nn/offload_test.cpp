#include "headroom/nn/offload.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>

#include "headroom/base/error.h"
#include "headroom/libtorch/on.h"
#include "headroom/nn/checkpoint.h"
#include "headroom/sim/simulate.h"

namespace headroom::nn {
namespace {

using torch::Tensor;

constexpr std::int64_t kMiB = 1 << 20;

std::int64_t allocated(const sim::Simulation& box) {
  return box.card(0).statistics().allocated_bytes.all.current;
}

// A transformer's layer with dropout, which saves views of one storage (q, k, v) and tensors that
// several nodes save.
struct LayerImpl : torch::nn::Module {
  explicit LayerImpl(std::int64_t width)
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
        qkv(register_module("qkv", torch::nn::Linear(width, 3 * width))),
        out(register_module("out", torch::nn::Linear(width, width))),
        up(register_module("up", torch::nn::Linear(width, 4 * width))),
        down(register_module("down", torch::nn::Linear(4 * width, width))) {}
  Tensor forward(const Tensor& x) {
    const auto parts = qkv(norm(x)).chunk(3, -1);
    const Tensor weights = torch::dropout(
        torch::softmax(torch::matmul(parts[0], parts[1].transpose(-1, -2)) / 8, -1), 0.1, true);
    const Tensor y = x + out(torch::matmul(weights, parts[2]));
    return y + torch::dropout(down(torch::gelu(up(y))), 0.1, true);
  }
  torch::nn::LayerNorm norm;
  torch::nn::Linear qkv, out, up, down;
};
TORCH_MODULE(Layer);

struct NetImpl : torch::nn::Module {
  explicit NetImpl(int depth, std::int64_t width) {
    for (int i = 0; i < depth; ++i)
      layers.push_back(register_module(std::to_string(i), Layer(width)));
  }
  Tensor forward(Tensor x, Recompute how = Recompute::none) {
    for (Layer& layer : layers)
      x = checkpointed(
          how, [layer](const Tensor& in) mutable { return layer(in); }, x);
    return x.pow(2).mean();
  }
  std::vector<Layer> layers;
};
TORCH_MODULE(Net);

struct Step {
  std::vector<Tensor> gradients;
  std::int64_t kept = 0, peak = 0;
};

Step step(const sim::Simulation& box, Net& net, const Tensor& x, Offload* offload,
          Recompute how = Recompute::none) {
  at::Generator generator = box.card(0).generator();
  generator.set_current_seed(3);
  const std::int64_t before = allocated(box);
  box.card(0).reset_peaks();
  Tensor loss;
  {
    if (offload != nullptr) {
      const auto moving = offload->scope();
      loss = net(x, how);
    } else {
      loss = net(x, how);
    }
  }
  Step done{.gradients = {}, .kept = allocated(box) - before};
  loss.backward();
  done.peak = box.card(0).statistics().allocated_bytes.all.peak - before;
  for (Tensor parameter : net->parameters()) {
    done.gradients.push_back(parameter.grad().cpu());
    parameter.mutable_grad().reset();
  }
  Tensor(x).mutable_grad().reset();
  return done;
}

class Offloaded : public testing::Test {
 protected:
  Offloaded() : x(torch::randn({16, 64, 256}).to(box.device(0)).requires_grad_()) {
    torch::manual_seed(1);
  }
  const sim::Simulation box = sim::simulate("1x4GiB", {.mode = sim::Mode::compute});
  Net net = libtorch::on(box.device(0), [] { return Net(6, 256); });
  const Tensor x;
};

void expect_equal(const Step& one, const Step& other) {
  ASSERT_EQ(one.gradients.size(), other.gradients.size());
  for (std::size_t i = 0; i < one.gradients.size(); ++i)
    EXPECT_TRUE(at::equal(one.gradients[i], other.gradients[i])) << "parameter " << i;
}

TEST_F(Offloaded, GivesTheSameGradientsWithLessMemory) {
  const Step plain = step(box, net, x, nullptr);
  Offload offload(net->parameters(), {.smallest = Bytes{4096}});
  for (int again = 0; again < 2; ++again) {
    const Step moved = step(box, net, x, &offload);
    expect_equal(moved, plain);
    EXPECT_LT(moved.kept, plain.kept / 4);
    EXPECT_LT(moved.peak, plain.peak / 2);
    EXPECT_EQ(offload.use().in_host.count, 0);
    EXPECT_GT(offload.use().peak_in_host.count, plain.kept - moved.kept);
  }
}

TEST_F(Offloaded, MovesWhatCheckpointedPartsKeep) {
  const Step plain = step(box, net, x, nullptr);
  for (const Recompute how : {Recompute::nonreentrant, Recompute::reentrant}) {
    const Step checkpointed = step(box, net, x, nullptr, how);
    Offload offload(net->parameters(), {.ahead = 1});
    const Step moved = step(box, net, x, &offload, how);
    expect_equal(checkpointed, plain);
    expect_equal(moved, plain);
    EXPECT_EQ(checkpointed.kept / kMiB, 6) << "an input of 1 MiB for each layer but the first";
    EXPECT_EQ(moved.kept / kMiB, 1) << "the last one has not left";
    EXPECT_GE(offload.use().moved, 5);
  }
}

TEST_F(Offloaded, LeavesOnTheDeviceWhatTheBudgetHasNoRoomFor) {
  const Step plain = step(box, net, x, nullptr);
  Offload all(net->parameters()), part(net->parameters(), {.host_budget = Bytes{20 * kMiB}});
  const Step moved = step(box, net, x, &all), limited = step(box, net, x, &part);
  expect_equal(limited, plain);
  EXPECT_EQ(all.use().stayed, 0);
  EXPECT_GT(part.use().stayed, 0);
  EXPECT_LE(part.use().peak_in_host.count, 20 * kMiB);
  EXPECT_GT(part.use().peak_in_host.count, 15 * kMiB);
  EXPECT_LT(limited.kept, plain.kept - 14 * kMiB);
  EXPECT_GT(limited.kept, moved.kept + 15 * kMiB);
}

TEST_F(Offloaded, LeavesParametersTheirViewsAndSmallTensorsAlone) {
  Offload offload(net->parameters(), {.smallest = Bytes{1}});
  const auto& weight = net->layers[0]->up->weight;
  {
    const auto scope = offload.scope();
    (void)torch::mm(weight.t().slice(0, 0, 8).detach(), weight);
    Tensor row = weight.detach()[0].requires_grad_();
    (void)(row * row);
  }
  EXPECT_EQ(offload.use().moved, 0);
  Offload of_large(net->parameters(), {.smallest = Bytes{1 << 30}});
  (void)step(box, net, x, &of_large);
  EXPECT_EQ(of_large.use().moved, 0);
}

// Views of one storage move once, and come back as views of one storage.
TEST_F(Offloaded, MovesAStorageOnce) {
  Offload offload({}, {.ahead = 0});
  Tensor y = torch::rand({1 << 20}, x.device()).requires_grad_(), loss;
  {
    const auto scope = offload.scope();
    const Tensor z = y * 2;  // saves nothing
    loss = (z * z).sum() + z.exp().sum() + z.view({1024, 1024}).t().slice(0, 3, 9).pow(3).sum();
  }
  EXPECT_EQ(offload.use().moved, 2) << "z and its exp";
  loss.backward();
  EXPECT_EQ(offload.use().in_host.count, 0);
}

TEST_F(Offloaded, CanRunBackwardTwiceAndMayBeForgotten) {
  Tensor y = torch::rand({1 << 20}, x.device()).requires_grad_(), loss;
  const std::int64_t before = allocated(box);
  {
    Offload offload({});
    {
      const auto scope = offload.scope();
      loss = y.exp().sin().exp().sum();
    }
    loss.backward({}, /*retain_graph=*/true);
  }
  const Tensor once = y.grad().clone();
  loss.backward();
  EXPECT_TRUE(at::equal(y.grad(), once * 2));
  y.mutable_grad().reset();
  loss.reset();
  EXPECT_EQ(allocated(box) - before, 4 * kMiB) << "the copy of the first gradient";
}

TEST_F(Offloaded, RefusesANegativeNumberAhead) {
  EXPECT_THROW(Offload({}, {.ahead = -1}), UsageError);
}

}  // namespace
}  // namespace headroom::nn

#include "headroom/nn/offload.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <array>
#include <cmath>
#include <optional>
#include <set>

#include "headroom/base/error.h"
#include "headroom/libtorch/on.h"
#include "headroom/libtorch/settle.h"
#include "headroom/nn/checkpoint.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_folder.h"

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

std::vector<Tensor> gradients_of(const Net& net) {
  std::vector<Tensor> all;
  for (const Tensor& parameter : net->parameters()) all.push_back(parameter.grad().cpu());
  return all;
}

void forget_gradients(const Net& net, const Tensor& x) {
  for (Tensor parameter : net->parameters()) parameter.mutable_grad().reset();
  Tensor(x).mutable_grad().reset();
}

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
  done.gradients = gradients_of(net);
  forget_gradients(net, x);
  return done;
}

class Offloaded : public ::testing::Test {
 protected:
  Offloaded() : x(torch::randn({16, 64, 256}).to(box.device(0)).requires_grad_()) {
    torch::manual_seed(1);
  }
  const sim::Simulation box =
      sim::simulate("1x4GiB", {.mode = sim::Mode::compute, .check_streams = true});
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
    EXPECT_EQ(offload.use().waiting.count, 0);
    EXPECT_GT(offload.use().peak_waiting.count, plain.kept - moved.kept);
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
  Offload all(net->parameters()), part(net->parameters(), {.budget = Bytes{20 * kMiB}});
  const Step moved = step(box, net, x, &all), limited = step(box, net, x, &part);
  expect_equal(limited, plain);
  EXPECT_EQ(all.use().stayed, 0);
  EXPECT_GT(part.use().stayed, 0);
  EXPECT_LE(part.use().peak_waiting.count, 20 * kMiB);
  EXPECT_GT(part.use().peak_waiting.count, 15 * kMiB);
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
  EXPECT_EQ(offload.use().waiting.count, 0);
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

// The stream checker would report memory that is used again while a copy of it still runs.
TEST_F(Offloaded, MemoryOfAForgottenGraphCanBeUsedAtOnce) {
  for (const bool half_way_back : {false, true}) {
    Offload offload({});
    const std::int64_t before = allocated(box);
    {
      Tensor y = torch::rand({1 << 20}, x.device()).requires_grad_(), loss;
      {
        const auto scope = offload.scope();
        loss = y.exp().exp().exp().exp().exp().sum();
      }
      const sim::InjectionScope refusal(box, sim::lasting(4));
      if (half_way_back) {
        EXPECT_THROW(loss.backward(), c10::OutOfMemoryError);
      }
    }
    libtorch::settle({box.device(0)});
    EXPECT_EQ(offload.use().waiting.count, 0);
    EXPECT_EQ(allocated(box), before);
    for (int i = 0; i < 8; ++i) (void)torch::zeros({1 << 20}, x.device());
    std::vector<Tensor> many;
    for (int i = 0; i < 8; ++i) many.push_back(torch::zeros({1 << 20}, x.device()));
  }
}

// A pass whose k-th request of memory in backward is refused. The size refused if it threw.
std::optional<Bytes> refused(const sim::Simulation& box, Net& net, const Tensor& x, int ahead,
                             int k, bool& asked) {
  Offload offload(net->parameters(), {.smallest = Bytes{4096}, .ahead = ahead});
  at::Generator(box.card(0).generator()).set_current_seed(3);
  Tensor loss;
  {
    const auto scope = offload.scope();
    loss = net(x);
  }
  Bytes size;
  int count = 0;
  const sim::Injector once = [&](const sim::Request& request) {
    if (++count == k) size = request.bytes;
    return count == k;
  };
  const sim::InjectionScope scope(box, once);
  bool threw = false;
  try {
    loss.backward();
  } catch (const c10::OutOfMemoryError&) {
    threw = true;
  }
  asked = count >= k;
  return threw ? std::optional(size) : std::nullopt;
}

// Whichever request is refused, fetching ahead never fails a pass that would succeed without it.
TEST_F(Offloaded, FetchingAheadGivesUpSilently) {
  Net small = libtorch::on(box.device(0), [] { return Net(2, 64); });
  const Tensor in = torch::randn({4, 16, 64}).to(box.device(0)).requires_grad_();
  const Step plain = step(box, small, in, nullptr);
  std::array<std::multiset<Bytes>, 2> failed;
  std::array<int, 2> requests{}, passed{};
  for (const std::size_t with : {0, 1}) {
    for (bool asked = true; asked; ++requests[with]) {
      const int k = requests[with] + 1;
      const auto size = refused(box, small, in, with == 1 ? 2 : 0, k, asked);
      if (!asked) break;
      if (size) {
        failed[with].insert(*size);
      } else {
        ++passed[with];
        expect_equal({.gradients = gradients_of(small)}, plain);
      }
      forget_gradients(small, in);
    }
  }
  EXPECT_GT(requests[0], 40);
  EXPECT_EQ(requests[1], requests[0] - 2) << "the last two have not left";
  EXPECT_EQ(passed[0], 0);
  EXPECT_GT(passed[1], 8);
  EXPECT_TRUE(
      std::includes(failed[0].begin(), failed[0].end(), failed[1].begin(), failed[1].end()));
}

TEST_F(Offloaded, ReportsWhatWasChangedInPlaceLikeAutograd) {
  for (const std::int64_t smallest : {1, 1 << 30}) {
    Offload offload({}, {.smallest = Bytes{smallest}, .ahead = 0});
    Tensor y = torch::rand({1 << 20}, x.device()).requires_grad_(), loss;
    {
      const auto scope = offload.scope();
      const Tensor z = y * 2;
      loss = (z * z).sum();
      z.detach().zero_();
    }
    EXPECT_EQ(offload.use().moved, smallest == 1 ? 1 : 0);
    EXPECT_THROW(loss.backward(), c10::Error);
  }
}

TEST_F(Offloaded, WaitsInAFileWithoutAName) {
  const testing::TemporaryFolder folder;
  const Step plain = step(box, net, x, nullptr);
  Offload in_memory(net->parameters(), {.smallest = Bytes{4096}});
  Offload in_file(net->parameters(), {.smallest = Bytes{4096}, .directory = folder.path()});
  const Step host = step(box, net, x, &in_memory);
  for (int again = 0; again < 2; ++again) {
    const Step moved = step(box, net, x, &in_file);
    expect_equal(moved, plain);
    EXPECT_EQ(moved.kept, host.kept);
    EXPECT_EQ(moved.peak, host.peak);
    EXPECT_EQ(in_file.use().waiting.count, 0);
    EXPECT_EQ(in_file.use().peak_waiting, in_memory.use().peak_waiting);
  }
  EXPECT_THAT(folder.names(), ::testing::IsEmpty());
}

TEST_F(Offloaded, AFullDiskLeavesAPassThatCanBeRepeated) {
  const testing::TemporaryFolder folder;
  const Step plain = step(box, net, x, nullptr);
  Offload offload(net->parameters(), {.directory = folder.path()});
  const std::int64_t before = allocated(box);
  {
    const testing::FileSizeLimit full(8 * kMiB);
    try {
      (void)step(box, net, x, &offload);
      FAIL() << "the disk is full";
    } catch (const WriteError& error) {
      EXPECT_THAT(error.what(),
                  ::testing::HasSubstr("[Offload] cannot write " + folder.path().string()));
    }
  }
  EXPECT_EQ(allocated(box), before);
  EXPECT_EQ(offload.use().waiting.count, 0);
  expect_equal(step(box, net, x, &offload), plain);
}

TEST_F(Offloaded, RefusesADirectoryThatIsNotThere) {
  EXPECT_THROW(Offload({}, {.directory = "/nowhere/at/all"}), WriteError);
}

TEST_F(Offloaded, RefusesANegativeNumberAhead) {
  EXPECT_THROW(Offload({}, {.ahead = -1}), UsageError);
}

// Two branches on streams of their own save the same tensor, and need it back at the same time.
TEST_F(Offloaded, ComesBackToSeveralStreams) {
  const c10::impl::VirtualGuardImpl guard(x.device().type());
  const std::array<c10::Stream, 2> sides = {guard.getNewStream(x.device(), 0),
                                            guard.getNewStream(x.device(), 0)};
  const c10::Stream main = guard.getStream(x.device());
  const auto order = [](const c10::Stream& earlier, const c10::Stream& later) {
    c10::Event event(earlier.device_type());
    event.record(earlier);
    event.block(later);
  };
  const auto gradient = [&](Offload offload) {
    const Tensor y = torch::linspace(0, 1, 1 << 20).to(x.device()).requires_grad_();
    Tensor loss;
    {
      const auto scope = offload.scope();
      const Tensor shared = y * 2;
      std::vector<Tensor> results;
      for (const c10::Stream& side : sides) {
        order(main, side);
        const c10::StreamGuard on(side);
        guard.recordDataPtrOnStream(shared.storage().data_ptr(), side);
        results.push_back((shared * shared).sum());
      }
      for (const c10::Stream& side : sides) order(side, main);
      loss = results[0] + results[1];
    }
    loss.backward();
    // The stream checker would report memory that is used again too early.
    for (const c10::Stream& side : sides) {
      const c10::StreamGuard on(side);
      std::vector<Tensor> many;
      for (int i = 0; i < 8; ++i) many.push_back(torch::zeros({1 << 20}, x.device()));
    }
    return y.grad().cpu();
  };
  const Tensor plain = gradient(Offload({}, {.smallest = Bytes{1 << 30}}));
  for (const int ahead : {0, 2}) {
    Offload offload({}, {.ahead = ahead});
    EXPECT_TRUE(gradient(offload).equal(plain)) << ahead;
    EXPECT_GT(offload.use().moved, 0);
  }
}

// Without data there is nothing to write.
TEST_F(Offloaded, WithoutCopiesNeedsNoFile) {
  const Step plain = step(box, net, x, nullptr);
  Offload offload(net->parameters(), {.directory = "/none", .copies = false});
  EXPECT_LT(step(box, net, x, &offload).kept, plain.kept);
}

TEST(Offload, RefusesNegativeSizes) {
  EXPECT_THROW(Offload({}, {.smallest = Bytes{-1}}), UsageError);
  EXPECT_THROW(Offload({}, {.budget = Bytes{-1}}), UsageError);
}

}  // namespace
}  // namespace headroom::nn

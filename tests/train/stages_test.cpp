// A model that is split over cards, alone and with replicas. Simulated cards compute, under the
// checker of streams; the last one trains alone what the others train together: the same parts,
// added up in the same order.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <tuple>

#include "headroom/base/file.h"
#include "headroom/sim/injection.h"
#include "staged_net.h"

namespace headroom::train::staged {
namespace {

// ---- The whole on one device ----

struct Alone {
  Alone(const torch::nn::Sequential& of, c10::Device device)
      : net(std::dynamic_pointer_cast<torch::nn::SequentialImpl>(of->clone())) {
    net->to(device);
    optimizer = adamw(net->parameters());
  }

  // The parts of each replica: their gradients, then the sums of the replicas in their order.
  // Returns the loss and, before the step, the norm of the gradients.
  std::pair<double, double> step(const Tensors& batch, int replicas, std::int64_t micro_batch,
                                 double max_norm = 0) {
    const std::int64_t all_rows = batch[0].size(0);
    const c10::Device device = net->parameters()[0].device();
    Tensors sums(optimizer->parameters().size());
    double loss = 0;
    std::int64_t first = 0;
    for (int replica = 0; replica < replicas; ++replica) {
      const std::int64_t rows = all_rows / replicas + (replica < all_rows % replicas ? 1 : 0),
                         parts = (rows + micro_batch - 1) / micro_batch;
      optimizer->zero_grad();
      double of_replica = 0;
      for (std::int64_t part = 0; part < parts; ++part) {
        const std::int64_t size = rows / parts + (part < rows % parts ? 1 : 0);
        const Tensor share = loss_of(net->forward(batch[0].narrow(0, first, size).to(device)),
                                     {{}, batch[1].narrow(0, first, size).to(device)}) *
                             (static_cast<double>(size) / static_cast<double>(all_rows));
        of_replica += share.item<double>();
        share.backward();
        first += size;
      }
      loss += of_replica;
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const Tensor gradient = optimizer->parameters()[i].grad();
        if (!gradient.defined()) continue;
        sums[i] = sums[i].defined() ? sums[i] + gradient : gradient.clone();
      }
    }
    double squares = 0;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      Tensor(optimizer->parameters()[i]).mutable_grad() = sums[i];
      squares += sums[i].square().sum().item<double>();
    }
    if (max_norm > 0)
      for (const Tensor& sum : sums)
        sum.mul_(std::min(1.0, max_norm / (std::sqrt(squares) + 1e-6)));
    optimizer->step();
    optimizer->zero_grad();
    return {loss, std::sqrt(squares)};
  }

  Tensors state() {
    Tensors all;
    for (const Tensor& one : net->parameters()) all.push_back(one.detach().cpu());
    for (std::size_t i = 0; i < optimizer->parameters().size(); ++i)
      for (const auto& [name, state] : optimizer->state(i)) all.push_back(state.cpu());
    return all;
  }

  torch::nn::Sequential net;
  std::unique_ptr<optim::Optimizer> optimizer;
};

// ---- Equal ----

struct Case {
  Shape shape;
  std::int64_t rows, micro_batch;
  torch::ScalarType type;
  nn::Recompute recompute = nn::Recompute::none;
};

class StagesEqual : public ::testing::TestWithParam<Case> {};

TEST_P(StagesEqual, OneDeviceToTheBit) {
  const auto& [shape, rows, micro_batch, type, recompute] = GetParam();
  const sim::Simulation box = cards(shape.ranks() + 1);
  torch::manual_seed(1);
  const auto net = layers(6, type, recompute);
  Alone alone(net, box.device(shape.ranks()));
  Together together(box, shape, net, plain(micro_batch));
  for (int i = 0; i < 50; ++i) {
    const Tensors batch = batch_of(rows, type);
    const Committed done = together.step.run(batch);
    EXPECT_EQ(done.loss(), alone.step(batch, shape.replicas, micro_batch).first) << "step " << i;
    EXPECT_EQ(done.rows, rows);
  }
  expect_same(together.state(shape), alone.state());
}

constexpr auto kChecked = nn::Recompute::nonreentrant;
INSTANTIATE_TEST_SUITE_P(
    Stages, StagesEqual,
    ::testing::Values(Case{{1, 4}, 14, 2, torch::kDouble}, Case{{1, 4}, 14, 2, torch::kFloat},
                      Case{{1, 4, Pipeline::gpipe}, 14, 2, torch::kDouble},
                      Case{{1, 4, Pipeline::gpipe}, 14, 2, torch::kFloat},
                      Case{{1, 4}, 14, 2, torch::kFloat, kChecked},
                      Case{{1, 4, Pipeline::gpipe}, 14, 2, torch::kFloat, kChecked},
                      Case{{2, 2}, 13, 2, torch::kDouble}, Case{{2, 2}, 13, 2, torch::kFloat},
                      Case{{2, 2, Pipeline::gpipe}, 13, 2, torch::kFloat, kChecked},
                      Case{{2, 2}, 1, 1, torch::kFloat},  // the other replica has no row
                      Case{{1, 8}, 3, 1, torch::kFloat}));

// ---- Failures ----

class StagesFail : public ::testing::TestWithParam<Shape> {};

TEST_P(StagesFail, AnOutOfMemoryAtEachRequestOfEachCardLosesNoStep) {
  const Shape shape = GetParam();
  const sim::Simulation box = cards(shape.ranks());
  torch::manual_seed(2);
  const auto net = layers(2, torch::kFloat);
  const auto same =
      torch::nn::Sequential(std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone()));
  Together clean(box, shape, net, plain(1)), run(box, shape, same, plain(1));
  const Tensors batch = batch_of(5);
  for (int card = 0; card < shape.ranks(); ++card)
    for (std::uint64_t request = 1;; ++request) {
      SCOPED_TRACE("card " + std::to_string(card) + ", request " + std::to_string(request));
      const double expected = clean.step.run(batch).loss();
      Committed done;
      {
        const sim::InjectionScope scope(box.card(card), sim::once(request));
        done = run.step.run(batch);
      }
      EXPECT_EQ(done.loss(), expected);
      expect_same(run.state(shape), clean.state(shape));
      if (::testing::Test::HasFailure()) return;
      if (done.attempts == 1) {
        EXPECT_GT(request, 20U);
        break;
      }
      ASSERT_FALSE(done.events.empty());
      EXPECT_EQ(done.events[0].device, box.device(card).str());
    }
}

// From the first step on, which reserves what commits need. Every third request, or with
// HEADROOM_FAILED_STEPS (`make fail-teams`) each.
TEST_P(StagesFail, ALastingOutOfMemoryAtAnyRequestOfAnyCardEndsAsACleanRunWithItsPlan) {
  const Shape shape = GetParam();
  const sim::Simulation box = cards(shape.ranks());
  const Tensors batch = batch_of(12);
  const std::uint64_t stride = environment("HEADROOM_FAILED_STEPS") ? 1 : 3;
  const auto made = [&](const StepOptions& options) {
    torch::manual_seed(2);
    return std::make_unique<Together>(box, shape, layers(2, torch::kFloat), options);
  };
  for (int card = 0; card < shape.ranks(); ++card)
    for (std::uint64_t request = 1;; request += stride) {
      SCOPED_TRACE("card " + std::to_string(card) + ", request " + std::to_string(request));
      const sim::Lift lift;
      const sim::Happened happened;
      StepOptions options = plain(4);
      options.on_event = [&](const Event& event) {
        if (event.kind == Event::Kind::shrink) lift.now();
      };
      const auto run = made(options);
      Committed done;
      {
        const sim::InjectionScope scope(box.card(card),
                                        sim::noted(sim::lasting(request, lift), happened));
        done = run->step.run(batch);
      }
      if (!happened.at_all()) {
        EXPECT_GT(request, 20U);
        break;
      }
      EXPECT_LT(done.plan.micro_batch, 4);
      const auto clean = made(plain(done.plan.micro_batch));
      EXPECT_EQ(clean->step.run(batch).loss(), done.loss());
      expect_same(run->state(shape), clean->state(shape));
      if (::testing::Test::HasFailure()) return;
    }
}

TEST_P(StagesFail, AnExceptionOfTheLossLeavesNoTrace) {
  const Shape shape = GetParam();
  const sim::Simulation box = cards(shape.ranks());
  Together run(box, shape, layers(2, torch::kFloat), plain(1));
  const Tensors batch = batch_of(8);
  static_cast<void>(run.step.run(batch));
  const Tensors before = run.state(shape);
  std::atomic<int> calls = 0;
  run.before_loss = [&](c10::Device device) {
    if (device == box.device(shape.ranks() - 1) && ++calls == 2) throw std::runtime_error("mine");
  };
  EXPECT_THAT([&] { static_cast<void>(run.step.run(batch)); },
              ::testing::ThrowsMessage<std::runtime_error>("mine"));
  expect_same(run.state(shape), before);
  run.before_loss = {};
  EXPECT_EQ(run.step.run(batch).step, 2);
}

TEST_P(StagesFail, AnExceptionWhereOneRankCountsTermsLeavesNoTrace) {
  const Shape shape = GetParam();
  const sim::Simulation box = cards(shape.ranks());
  Split split(layers(2, torch::kFloat), Together::options_of(box, shape));
  std::atomic<bool> throws = false;
  Team team = split.team(&adamw, loss_of);
  team.ranks[1].objective.terms = [&](const Tensors& rows) {
    if (throws) throw std::runtime_error("mine");
    return rows[0].size(0);
  };
  Step step(team, plain(1));
  static_cast<void>(step.run(batch_of(5)));
  throws = true;
  EXPECT_THAT([&] { static_cast<void>(step.run(batch_of(5))); },
              ::testing::ThrowsMessage<std::runtime_error>("mine"));
  throws = false;
  EXPECT_EQ(step.run(batch_of(5)).step, 2);
}

INSTANTIATE_TEST_SUITE_P(Stages, StagesFail,
                         ::testing::Values(Shape{1, 4}, Shape{1, 4, Pipeline::gpipe}, Shape{2, 2},
                                           Shape{4, 1}));

// Each step fails at another request of another card, and commits at the second attempt.
// HEADROOM_FAILED_STEPS: how many; `make fail-teams` has 10,000.
TEST(Stages, ManyFailedStepsNeitherHangNorDiffer) {
  const Shape shape{2, 2};
  const sim::Simulation box = cards(shape.ranks());
  torch::manual_seed(7);
  const auto net = layers(2, torch::kFloat);
  const auto same =
      torch::nn::Sequential(std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone()));
  Together clean(box, shape, net, plain(1)), run(box, shape, same, plain(1));
  const int wanted = std::stoi(environment("HEADROOM_FAILED_STEPS").value_or("100"));
  std::mt19937 random(7);
  int failed = 0;
  for (int i = 0; failed < wanted; ++i) {
    const Tensors batch = batch_of(5);
    const auto card = static_cast<int>(random() % 4);
    const std::uint64_t request = 1 + random() % 60;
    SCOPED_TRACE("card " + std::to_string(card) + ", request " + std::to_string(request));
    const double expected = clean.step.run(batch).loss();
    Committed done;
    {
      const sim::InjectionScope scope(box.card(card), sim::once(request));
      done = run.step.run(batch);
    }
    ASSERT_EQ(done.loss(), expected);
    failed += done.attempts - 1;
    if (i % 20 == 0) expect_same(run.state(shape), clean.state(shape));
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
}

// ---- Clipping, scaling, buffers, ties ----

TEST(Stages, ClippingSeesTheNormOfAllStages) {
  const Shape shape{2, 2};
  const sim::Simulation box = cards(shape.ranks() + 1);
  torch::manual_seed(3);
  const auto net = layers(3, torch::kDouble);
  Alone alone(net, box.device(shape.ranks()));
  StepOptions options = plain(2);
  options.max_grad_norm = 0.1;
  Together run(box, shape, net, options);
  for (int i = 0; i < 10; ++i) {
    const Tensors batch = batch_of(9, torch::kDouble);
    const auto [loss, norm] = alone.step(batch, shape.replicas, 2, options.max_grad_norm);
    const Committed done = run.step.run(batch);
    EXPECT_NEAR(done.loss(), loss, 1e-12);
    EXPECT_NEAR(done.gradient_norm(), norm, 1e-12);
  }
  const Tensors ours = run.state(shape), right = alone.state();
  for (std::size_t i = 0; i < ours.size(); ++i)
    EXPECT_TRUE(torch::allclose(ours[i], right[i], 1e-12, 1e-12)) << i;
}

TEST(Stages, InfiniteGradientsOfOneStageSkipTheStepOnAll) {
  const Shape shape{2, 2};
  const sim::Simulation box = cards(shape.ranks());
  torch::manual_seed(3);
  StepOptions options = plain(2);
  options.scaling = optim::LossScalerOptions{};
  Together run(box, shape, layers(3, torch::kFloat), options);
  static_cast<void>(run.step.run(batch_of(9)));
  const Tensors before = run.state(shape, 0);
  Tensors batch = batch_of(9);
  batch[0][7][0] = std::numeric_limits<float>::infinity();
  static_cast<void>(run.step.run(batch));
  expect_same(run.state(shape), before);
  EXPECT_EQ(run.step.scaler()->factor(), 32768);
}

TEST(Stages, OffloadAndAutocastWorkInside) {
  const Shape shape{1, 3};
  const sim::Simulation box = cards(shape.ranks());
  torch::manual_seed(4);
  const auto net = layers(4, torch::kFloat);
  const auto same =
      torch::nn::Sequential(std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone()));
  StepOptions options = plain(64);
  options.autocast = torch::kBFloat16;
  Together plainly(box, shape, net, options);
  options.plan.techniques = {"offload"};
  Together offloaded(box, shape, same, options);
  for (int i = 0; i < 3; ++i) {
    const Tensors batch = batch_of(64 * 5);
    EXPECT_EQ(plainly.step.run(batch).loss(), offloaded.step.run(batch).loss());
  }
  expect_same(plainly.state(shape), offloaded.state(shape));
}

// ---- Memory ----

Bytes peak(const sim::Simulation& box, int card) {
  return Bytes{box.card(card).statistics().requested_bytes.all.peak};
}

// Each stage is priced alone, and takes the same among the others.
class StagePrices : public ::testing::TestWithParam<std::tuple<Shape, bool>> {};

TEST_P(StagePrices, AreTheMemoryOfEachCardToTheByte) {
  const auto& [shape, autocasts] = GetParam();
  const std::int64_t rows = 12 * shape.replicas;
  {
    const sim::Simulation box = cards(shape.ranks());
    torch::manual_seed(6);
    StepOptions options = plain(1);
    options.prices = true;
    if (autocasts) options.autocast = torch::kBFloat16;
    Together run(box, shape, layers(5, torch::kFloat), options);
    const Tensors batch = batch_of(rows);
    run.step.prepare(batch);
    ASSERT_NE(run.step.prices(), nullptr) << run.step.why_unpriced();
    for (const std::int64_t micro_batch : {1, 2, 12}) {
      SCOPED_TRACE("micro-batch " + std::to_string(micro_batch));
      const Plan plan{.micro_batch = micro_batch};
      const auto needed = run.step.prices()->needed(plan, {.rows = 12});
      ASSERT_TRUE(needed.has_value());
      run.step.set_plan(plan);
      for (int card = 0; card < shape.ranks(); ++card) box.card(card).empty_cache();
      for (int card = 0; card < shape.ranks(); ++card) box.card(card).reset_peaks();
      for (int i = 0; i < 2; ++i) static_cast<void>(run.step.run(batch));
      for (int card = 0; card < shape.ranks(); ++card)
        EXPECT_EQ(box.card(card).statistics().reserved_bytes.all.peak,
                  needed->of(static_cast<std::size_t>(card % shape.stages)).count)
            << "card " << card << ", requested " << peak(box, card).count;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Stages, StagePrices,
    ::testing::Combine(::testing::Values(Shape{1, 3}, Shape{1, 3, Pipeline::gpipe}, Shape{2, 2}),
                       ::testing::Bool()));

}  // namespace
}  // namespace headroom::train::staged

// A step on several cards. Simulated cards compute, under the checker of streams; one of them, the
// last, trains alone what the others train together: the same parts, added up in the same order.
#include "headroom/train/team.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <optional>

#include "headroom/base/error.h"
#include "headroom/parallel/replicas.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"
#include "headroom/train/step.h"
#include "nets.h"

namespace headroom::train {
namespace {

using torch::Tensor;

constexpr std::int64_t kWidth = 12, kClasses = 5;

struct BlocksImpl : torch::nn::Module {
  BlocksImpl() {
    for (int i = 0; i < 3; ++i) {
      up.push_back(register_module("up" + std::to_string(i), torch::nn::Linear(kWidth, 30)));
      norm.push_back(register_module("norm" + std::to_string(i),
                                     torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth}))));
      down.push_back(register_module("down" + std::to_string(i), torch::nn::Linear(30, kWidth)));
    }
    head = register_module("head", torch::nn::Linear(kWidth, kClasses));
  }
  Tensor forward(Tensor x) {
    for (std::size_t i = 0; i < up.size(); ++i) x = x + down[i](torch::gelu(up[i](norm[i](x))));
    return head(x);
  }
  std::vector<torch::nn::Linear> up, down;
  std::vector<torch::nn::LayerNorm> norm;
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Blocks);

struct NormedImpl : torch::nn::Module {
  NormedImpl() {
    first = register_module("first", torch::nn::Linear(kWidth, 8));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    head = register_module("head", torch::nn::Linear(8, kClasses));
    last_rows = register_buffer("last_rows", torch::zeros({1}));
    constant = register_buffer("constant", torch::ones({3}));
  }
  Tensor forward(const Tensor& x) {
    if (is_training()) last_rows.fill_(x[-1][0].item<double>());
    return head(torch::relu(norm(first(x))));
  }
  torch::nn::Linear first{nullptr}, head{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  Tensor last_rows, constant;
};
TORCH_MODULE(Normed);

StepOptions plain(std::int64_t micro_batch = 0) {
  StepOptions options;
  options.prices = options.adapts = false;
  options.plan.micro_batch = micro_batch;
  return options;
}

std::vector<c10::Device> first_cards(const sim::Simulation& box, int count) {
  std::vector<c10::Device> devices;
  for (int card = 0; card < count; ++card) devices.push_back(box.device(card));
  return devices;
}

Tensor loss_of(const Tensor& logits, const Tensor& labels) {
  return torch::nn::functional::cross_entropy(logits, labels);
}

// Replicas with all that a step needs, and the step.
template <typename Net>
struct Together {
  Together(const sim::Simulation& box, int ranks, const StepOptions& options,
           torch::ScalarType type = torch::kFloat)
      : net(first_cards(box, ranks), [type] {
          Net made;
          made->to(type);
          return made;
        }) {
    Team team;
    for (Net& one : net) {
      optimizers.push_back(optim::make_adamw(
          one->parameters(), {.learning_rate = 1e-2, .form = optim::OptimizerForm::fused}));
      team.ranks.push_back(
          {*one, *optimizers.back(), {.loss = [this, one](const Tensors& rows) mutable {
             if (before) before(rows[0].device());
             return loss_of(one->forward(rows[0]), rows[1]);
           }}});
    }
    step.emplace(std::move(team), options);
  }

  // Parameters, buffers and optimizer states of a rank.
  Tensors state(std::size_t rank) {
    Tensors all;
    for (const Tensor& one : net[rank]->parameters()) {
      EXPECT_FALSE(one.grad().defined());
      all.push_back(one.detach().cpu().clone());
    }
    for (const Tensor& one : net[rank]->buffers()) all.push_back(one.cpu().clone());
    for (std::size_t i = 0; i < optimizers[rank]->parameters().size(); ++i)
      for (const auto& [name, state] : optimizers[rank]->state(i))
        all.push_back(state.cpu().clone());
    return all;
  }
  Tensors state() {
    Tensors all = state(0);
    for (std::size_t rank = 1; rank < net.size(); ++rank) {
      SCOPED_TRACE("rank " + std::to_string(rank));
      expect_same(state(rank), all);
    }
    return all;
  }

  parallel::Replicas<Net> net;
  std::vector<std::unique_ptr<optim::Optimizer>> optimizers;
  std::function<void(c10::Device)> before;  // each forward pass
  std::optional<Step> step;
};

Tensors batch_of(std::int64_t rows, torch::ScalarType type = torch::kFloat) {
  return {torch::randn({rows, kWidth}).to(type), torch::randint(kClasses, {rows})};
}

struct Shape {
  int ranks;
  std::int64_t rows, micro_batch;
  torch::ScalarType type;
};

class Equal : public ::testing::TestWithParam<Shape> {};

// The parts of each rank on one device: their gradients, and then the ranks' sums in their order.
double step_alone(Blocks& net, optim::Optimizer& optimizer, const Tensors& batch,
                  const Shape& shape) {
  std::vector<Tensor> sums(optimizer.parameters().size());
  double loss = 0;
  std::int64_t first = 0;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    std::int64_t rows = shape.rows / shape.ranks + (rank < shape.rows % shape.ranks ? 1 : 0);
    double of_rank = 0;
    optimizer.zero_grad();
    const std::int64_t parts = rows == 0 ? 0 : (rows + shape.micro_batch - 1) / shape.micro_batch;
    for (std::int64_t part = 0; part < parts; ++part) {
      const std::int64_t size = rows / parts + (part < rows % parts ? 1 : 0);
      const c10::Device device = net->parameters()[0].device();
      const Tensor share = loss_of(net->forward(batch[0].narrow(0, first, size).to(device)),
                                   batch[1].narrow(0, first, size).to(device)) *
                           (static_cast<double>(size) / static_cast<double>(shape.rows));
      of_rank += share.item<double>();
      share.backward();
      first += size;
    }
    loss += of_rank;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const Tensor gradient = optimizer.parameters()[i].grad();
      if (!gradient.defined()) continue;
      sums[i] = sums[i].defined() ? sums[i] + gradient : gradient.clone();
    }
  }
  for (std::size_t i = 0; i < sums.size(); ++i)
    Tensor(optimizer.parameters()[i]).mutable_grad() = sums[i];
  optimizer.step();
  optimizer.zero_grad();
  return loss;
}

TEST_P(Equal, ReplicasTrainToTheBitAsOneDeviceDoes) {
  const Shape shape = GetParam();
  const sim::Simulation box = sim::simulate(std::to_string(shape.ranks + 1) + "x1GiB",
                                            {.mode = sim::Mode::compute, .check_streams = true});
  torch::manual_seed(1);
  Together<Blocks> together(box, shape.ranks, plain(shape.micro_batch), shape.type);
  parallel::Replicas<Blocks> alone({box.device(shape.ranks)}, [&] {
    Blocks made;
    made->to(shape.type);
    return made;
  });
  parallel::detail::copy_values(*together.net, *alone);
  const auto optimizer = optim::make_adamw(
      alone->parameters(), {.learning_rate = 1e-2, .form = optim::OptimizerForm::fused});
  for (int i = 0; i < 50; ++i) {
    const Tensors batch = batch_of(shape.rows, shape.type);
    const Committed done = together.step->run(batch);
    EXPECT_EQ(done.loss(), step_alone(alone[0], *optimizer, batch, shape)) << "step " << i;
    EXPECT_EQ(done.rows, shape.rows);
  }
  Tensors expected;
  for (const Tensor& one : alone->parameters()) expected.push_back(one.detach().cpu());
  for (std::size_t i = 0; i < optimizer->parameters().size(); ++i)
    for (const auto& [name, state] : optimizer->state(i)) expected.push_back(state.cpu());
  expect_same(together.state(), expected);
}

INSTANTIATE_TEST_SUITE_P(Teams, Equal,
                         ::testing::Values(Shape{4, 16, 2, torch::kDouble},
                                           Shape{4, 16, 2, torch::kFloat},
                                           Shape{3, 11, 2, torch::kFloat},
                                           Shape{2, 7, 7, torch::kDouble},
                                           Shape{4, 3, 1, torch::kFloat}));

// ---- Failures ----

class TeamTest : public ::testing::Test {
 protected:
  static constexpr int kRanks = 3;
  const sim::Simulation box_ = sim::simulate(std::to_string(kRanks) + "x1GiB",
                                             {.mode = sim::Mode::compute, .check_streams = true});
};

TEST_F(TeamTest, AnOutOfMemoryAtEachRequestOfEachCardLosesNoStep) {
  torch::manual_seed(2);
  Together<Blocks> clean(box_, kRanks, plain(2)), run(box_, kRanks, plain(2));
  for (int rank = 0; rank < kRanks; ++rank)
    parallel::detail::copy_values(*clean.net[static_cast<std::size_t>(rank)],
                                  *run.net[static_cast<std::size_t>(rank)]);
  const Tensors batch = batch_of(8);
  for (int card = 0; card < kRanks; ++card)
    for (std::uint64_t request = 1;; ++request) {
      SCOPED_TRACE("card " + std::to_string(card) + ", request " + std::to_string(request));
      const double expected = clean.step->run(batch).loss();
      Committed done;
      {
        const sim::InjectionScope scope(box_.card(card), sim::once(request));
        done = run.step->run(batch);
      }
      EXPECT_EQ(done.loss(), expected);
      expect_same(run.state(), clean.state());
      if (::testing::Test::HasFailure()) return;
      if (done.attempts == 1) {
        EXPECT_GT(request, 20U);
        break;
      }
      ASSERT_FALSE(done.events.empty());
      EXPECT_EQ(done.events[0].device, box_.device(card).str());
    }
}

TEST_F(TeamTest, ALastingOutOfMemoryOnOneCardMakesThePartsOfAllSmaller) {
  torch::manual_seed(2);
  Together<Blocks> run(box_, kRanks, plain());
  static_cast<void>(run.step->run(batch_of(12)));
  const Tensors batch = batch_of(12);
  sim::Lift lift;
  const sim::InjectionScope scope(box_.card(2), sim::lasting(5, lift));
  run.before = [&](c10::Device) {
    if (run.step->plan().micro_batch == 1) lift.now();
  };
  const Committed done = run.step->run(batch);
  EXPECT_LT(done.plan.micro_batch, 4);
  EXPECT_GT(done.plan.micro_batch, 0);
  static_cast<void>(run.state());  // equal on all ranks
}

TEST_F(TeamTest, AnExceptionOfOneRanksLossLeavesNoTraceOnAny) {
  torch::manual_seed(2);
  Together<Blocks> run(box_, kRanks, plain());
  static_cast<void>(run.step->run(batch_of(9)));
  const Tensors before = run.state();
  run.before = [&](c10::Device device) {
    if (device == box_.device(1)) throw std::runtime_error("a bad row");
  };
  try {
    static_cast<void>(run.step->run(batch_of(9)));
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "a bad row");
  }
  expect_same(run.state(), before);
  EXPECT_EQ(run.step->steps(), 1);
  run.before = {};
  EXPECT_EQ(run.step->run(batch_of(9)).step, 2);
}

TEST_F(TeamTest, RanksWithoutRowsTrainWithTheOthers) {
  torch::manual_seed(2);
  Together<Blocks> run(box_, kRanks, plain());
  for (const std::int64_t rows : {1, 2, 5, 1}) EXPECT_EQ(run.step->run(batch_of(rows)).rows, rows);
  static_cast<void>(run.state());
}

// ---- Buffers ----

TEST_F(TeamTest, BatchNormCountsTheBatchOnceAndLastBuffersAreOnAll) {
  torch::manual_seed(2);
  Together<Normed> run(box_, kRanks, plain(3), torch::kDouble);
  Together<Normed> whole(box_, 1, plain(), torch::kDouble);
  parallel::detail::copy_values(*run.net, *whole.net);
  for (int i = 0; i < 3; ++i) {
    const Tensors batch = batch_of(14, torch::kDouble);
    // The parts normalise by their own statistics, so weights go apart; the first layer's input
    // does not, and its weights are put back.
    parallel::detail::copy_values(*whole.net, *run.net);
    for (std::size_t rank = 1; rank < run.net.size(); ++rank)
      parallel::detail::copy_values(*whole.net, *run.net[rank]);
    static_cast<void>(run.step->run(batch));
    static_cast<void>(whole.step->run(batch));
    for (Normed& one : run.net) {
      EXPECT_TRUE(torch::allclose(one->norm->running_mean.cpu(),
                                  whole.net->norm->running_mean.cpu(), 1e-12, 1e-12));
      EXPECT_TRUE(torch::allclose(one->norm->running_var.cpu(), whole.net->norm->running_var.cpu(),
                                  1e-12, 1e-12));
      EXPECT_EQ(one->norm->num_batches_tracked.item<std::int64_t>(), i + 1);
      EXPECT_EQ(one->last_rows.item<float>(), batch[0][-1][0].item<float>());
    }
  }
}

// ---- Scaling, clipping ----

TEST_F(TeamTest, InfiniteGradientsOfOneRankSkipTheStepOnAll) {
  torch::manual_seed(2);
  StepOptions options = plain();
  options.scaling = optim::LossScalerOptions{};
  Together<Blocks> run(box_, kRanks, options);
  static_cast<void>(run.step->run(batch_of(9)));
  const Tensors before = run.state();
  Tensors batch = batch_of(9);
  batch[0][4][0] = std::numeric_limits<float>::infinity();  // of rank 1
  static_cast<void>(run.step->run(batch));
  const Tensors after = run.state();
  for (std::size_t i = 0; i < run.net->parameters().size(); ++i)
    EXPECT_TRUE(after[i].equal(before[i])) << i;
  EXPECT_EQ(run.step->scaler()->factor(), 32768);
}

TEST_F(TeamTest, ClippingSeesTheNormOfTheWholeBatch) {
  torch::manual_seed(2);
  StepOptions options = plain();
  options.max_grad_norm = 0.1;
  Together<Blocks> run(box_, kRanks, options, torch::kDouble);
  Together<Blocks> one(box_, 1, options, torch::kDouble);
  parallel::detail::copy_values(*run.net, *one.net);
  const Tensors batch = batch_of(9, torch::kDouble);
  EXPECT_NEAR(run.step->run(batch).gradient_norm(), one.step->run(batch).gradient_norm(), 1e-12);
  const Tensors ours = run.state(), right = one.state();
  for (std::size_t i = 0; i < ours.size(); ++i)
    EXPECT_TRUE(torch::allclose(ours[i], right[i], 1e-10, 1e-12)) << i;
}

// ---- Mistakes ----

TEST_F(TeamTest, TwoRanksOfOneDeviceAreRefused) {
  Blocks net = libtorch::on(box_.device(0), [] { return Blocks(); });
  const auto optimizer =
      optim::make_adamw(net->parameters(), {.form = optim::OptimizerForm::fused});
  const Objective objective{.loss = [](const Tensors& rows) { return rows[0]; }};
  EXPECT_THROW(Step(Team{{{*net, *optimizer, objective}, {*net, *optimizer, objective}}}, {}),
               UsageError);
  EXPECT_THROW(Step(Team{}, {}), UsageError);
}

TEST_F(TeamTest, AnOptimizerThatNeedsMemoryToCommitIsRefused) {
  parallel::Replicas<Blocks> net(first_cards(box_, 2), [] { return Blocks(); });
  std::vector<std::unique_ptr<optim::Optimizer>> optimizers;
  Team team;
  for (Blocks& one : net) {
    optimizers.push_back(
        optim::make_adamw(one->parameters(), {.form = optim::OptimizerForm::foreach}));
    team.ranks.push_back(
        {*one, *optimizers.back(), {.loss = [](const Tensors& rows) { return rows[0]; }}});
  }
  EXPECT_THROW(Step(std::move(team), {}), UsageError);
}

// ---- Memory ----

Bytes peak(const sim::Simulation& box, int card) {
  return Bytes{box.card(card).statistics().requested_bytes.all.peak};
}

TEST(TeamPrices, AreTheMemoryOfEachReplicaToTheByte) {
  std::optional<Bytes> priced;
  const Tensors batch = batch_of(12);
  {
    const sim::Simulation box = sim::simulate("3x1GiB", {.mode = sim::Mode::compute});
    StepOptions options = plain(2);
    options.prices = true;
    Together<Blocks> run(box, 3, options);
    run.step->prepare(batch);
    ASSERT_NE(run.step->prices(), nullptr) << run.step->why_unpriced();
    priced = run.step->prices()->needed(options.plan, {.rows = 4})->largest();
    for (int i = 0; i < 2; ++i) static_cast<void>(run.step->run(batch));
    for (int card = 0; card < 3; ++card) {
      SCOPED_TRACE(card);
      EXPECT_EQ(peak(box, card), peak(box, 0));
      EXPECT_EQ(box.card(card).statistics().reserved_bytes.all.peak, priced->count);
    }
  }
}

}  // namespace
}  // namespace headroom::train

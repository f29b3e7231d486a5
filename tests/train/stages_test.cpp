// A model that is split over cards, alone and with replicas. Simulated cards compute, under the
// checker of streams; the last one trains alone what the others train together: the same parts,
// added up in the same order.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>
#include <tuple>

#include "headroom/base/error.h"
#include "headroom/nn/checkpoint.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"
#include "headroom/train/split.h"
#include "headroom/train/step.h"
#include "nets.h"

namespace headroom::train {
namespace {

using parallel::Pipeline;
using torch::Tensor;

constexpr std::int64_t kIn = 10, kHidden = 12, kOut = 5;

struct LayerImpl : torch::nn::Cloneable<LayerImpl> {
  explicit LayerImpl(nn::Recompute how = nn::Recompute::none) : recompute(how) { reset(); }
  void reset() override {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kHidden})));
    up = register_module("up", torch::nn::Linear(kHidden, 30));
    down = register_module("down", torch::nn::Linear(30, kHidden));
  }
  Tensor forward(const Tensor& x) {
    return nn::checkpointed(
        recompute,
        [this](const Tensor& in) { return in + down->forward(torch::gelu(up(norm(in)))); }, x);
  }
  nn::Recompute recompute;
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Layer);

torch::nn::Sequential layers(int count, torch::ScalarType type,
                             nn::Recompute how = nn::Recompute::none) {
  torch::nn::Sequential net(torch::nn::Linear(kIn, kHidden));
  for (int i = 0; i < count; ++i) net->push_back(Layer(how));
  net->push_back(torch::nn::Linear(kHidden, kOut));
  net->to(type);
  return net;
}

std::unique_ptr<optim::Optimizer> adamw(const Tensors& parameters) {
  return optim::make_adamw(parameters,
                           {.learning_rate = 1e-2, .form = optim::OptimizerForm::fused});
}

Tensor loss_of(const Tensor& logits, const Tensors& rows) {
  return torch::nn::functional::cross_entropy(logits, rows[1]);
}

Tensors batch_of(std::int64_t rows, torch::ScalarType type = torch::kFloat) {
  return {torch::randn({rows, kIn}).to(type), torch::randint(kOut, {rows})};
}

StepOptions plain(std::int64_t micro_batch) {
  StepOptions options;
  options.prices = options.adapts = false;
  options.plan.micro_batch = micro_batch;
  return options;
}

sim::Simulation cards(int count) {
  return sim::simulate(std::to_string(count) + "x1GiB",
                       {.mode = sim::Mode::compute, .check_streams = true});
}

struct Shape {
  int replicas = 1, stages = 1;
  Pipeline pipeline = Pipeline::one_by_one;
  [[nodiscard]] int ranks() const { return replicas * stages; }
};

struct Together {
  Together(const sim::Simulation& box, const Shape& shape, const torch::nn::Sequential& net,
           const StepOptions& options)
      : split(net, options_of(box, shape)),
        step(split.team(&adamw,
                        [this](const Tensor& output, const Tensors& rows) {
                          if (before_loss) before_loss(output.device());
                          return loss_of(output, rows);
                        }),
             options) {}

  static SplitOptions options_of(const sim::Simulation& box, const Shape& shape) {
    SplitOptions options{.replicas = shape.replicas, .pipeline = shape.pipeline};
    for (int rank = 0; rank < shape.ranks(); ++rank) options.devices.push_back(box.device(rank));
    return options;
  }

  // Parameters and optimizer states of a replica, and no gradients.
  Tensors state(const Shape& shape, int replica) {
    Tensors all;
    const auto first = static_cast<std::size_t>(replica * shape.stages);
    const std::size_t last = first + static_cast<std::size_t>(shape.stages);
    for (std::size_t rank = first; rank < last; ++rank)
      for (const Tensor& one : split.stage(rank).parameters()) {
        EXPECT_FALSE(one.grad().defined());
        all.push_back(one.detach().cpu().clone());
      }
    for (std::size_t rank = first; rank < last; ++rank)
      for (std::size_t i = 0; i < split.optimizer(rank).parameters().size(); ++i)
        for (const auto& [name, state] : split.optimizer(rank).state(i))
          all.push_back(state.cpu().clone());
    return all;
  }
  Tensors state(const Shape& shape) {
    Tensors all = state(shape, 0);
    for (int replica = 1; replica < shape.replicas; ++replica) {
      SCOPED_TRACE("replica " + std::to_string(replica));
      expect_same(state(shape, replica), all);
    }
    return all;
  }

  std::function<void(c10::Device)> before_loss;
  Split split;
  Step step;
};

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

TEST_P(StagesFail, ALastingOutOfMemoryOnOneCardMakesThePartsOfAllSmaller) {
  const Shape shape = GetParam();
  const sim::Simulation box = cards(shape.ranks());
  for (int card = 0; card < shape.ranks(); ++card) {
    SCOPED_TRACE(card);
    torch::manual_seed(2);
    sim::Lift lift;
    StepOptions options = plain(4);
    options.on_event = [&](const Event& event) {
      if (event.to.micro_batch == 1) lift.now();
    };
    Together run(box, shape, layers(2, torch::kFloat), options);
    static_cast<void>(run.step.run(batch_of(12)));
    const sim::InjectionScope scope(box.card(card), sim::lasting(5, lift));
    const Committed done = run.step.run(batch_of(12));
    EXPECT_EQ(done.plan.micro_batch, 1);
    static_cast<void>(run.state(shape));  // equal on all replicas
  }
}

TEST_P(StagesFail, AnExceptionOfTheLossLeavesNoTrace) {
  const Shape shape = GetParam();
  const sim::Simulation box = cards(shape.ranks());
  Together run(box, shape, layers(2, torch::kFloat), plain(1));
  const Tensors batch = batch_of(5);
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

INSTANTIATE_TEST_SUITE_P(Stages, StagesFail,
                         ::testing::Values(Shape{1, 4}, Shape{1, 4, Pipeline::gpipe}, Shape{2, 2}));

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

// An embedding that is also the head, on the first and the last of three cards.
struct TiedNet {
  TiedNet(const sim::Simulation& box, const Shape& shape, const StepOptions& options) {
    torch::manual_seed(5);
    const Tensor values = torch::randn({kWords, kHidden}, torch::kDouble);
    const auto middle = layers(1, torch::kDouble);
    Team team{.stages = shape.stages, .pipeline = shape.pipeline};
    for (int replica = 0; replica < shape.replicas; ++replica)
      for (int stage = 0; stage < shape.stages; ++stage) {
        const c10::Device device = box.device(replica * shape.stages + stage);
        const auto module = std::make_shared<torch::nn::Module>();
        const bool is_first = stage == 0, is_last = stage + 1 == shape.stages;
        Layer layer(std::dynamic_pointer_cast<LayerImpl>(middle->at<LayerImpl>(1).clone()));
        module->register_module("layer", layer.ptr());
        layer->to(device);
        Tensors trained = module->parameters();
        Tensor table;
        if (is_first || is_last)
          table = module->register_parameter("table", values.to(device, false, true));
        if (is_first) trained.push_back(table);
        modules.push_back(module);
        optimizers.push_back(adamw(trained));
        if (is_last)
          team.ties.push_back({modules[modules.size() - static_cast<std::size_t>(shape.stages)]
                                   ->named_parameters()["table"],
                               table});
        team.ranks.push_back(
            {*module,
             *optimizers.back(),
             {.part = [=](const Tensors& rows, const Tensors& given) mutable {
               const Tensor x = is_first ? torch::embedding(table, rows[0]) : given[0];
               const Tensor y = layer->forward(x);
               return Tensors{is_last ? loss_of(torch::matmul(y, table.t()), rows) : y};
             }}});
      }
    step.emplace(std::move(team), options);
  }
  static constexpr std::int64_t kWords = 23;
  static Tensors words(std::int64_t rows) {
    return {torch::randint(kWords, {rows}), torch::randint(kWords, {rows})};
  }
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  std::vector<std::unique_ptr<optim::Optimizer>> optimizers;
  std::optional<Step> step;
};

TEST(Stages, ATiedWeightIsTrainedOnceAndItsCopyFollows) {
  const Shape shape{2, 3};
  const sim::Simulation box = cards(shape.ranks());
  StepOptions options = plain(3);
  options.max_grad_norm = 0.5;
  TiedNet net(box, shape, options);
  // The whole, on the CPU.
  Tensor table = net.modules[0]->named_parameters()["table"].detach().cpu().clone();
  table.requires_grad_();
  std::vector<Layer> middle;
  Tensors trained{table};
  for (int stage = 0; stage < shape.stages; ++stage) {
    middle.emplace_back();
    middle.back()->to(torch::kDouble);
    const torch::NoGradGuard no_grad;
    const auto theirs = net.modules[static_cast<std::size_t>(stage)]->named_parameters();
    for (const auto& one : middle.back()->named_parameters()) {
      Tensor(one.value()).copy_(theirs["layer." + one.key()].cpu());
      trained.push_back(one.value());
    }
  }
  const auto optimizer = adamw(trained);
  for (int i = 0; i < 20; ++i) {
    const Tensors batch = TiedNet::words(17);
    Tensor x = torch::embedding(table, batch[0]);
    for (Layer& layer : middle) x = layer->forward(x);
    const Tensor loss = loss_of(torch::matmul(x, table.t()), batch);
    loss.backward();
    const double norm = torch::nn::utils::clip_grad_norm_(trained, options.max_grad_norm);
    optimizer->step();
    optimizer->zero_grad();
    const Committed done = net.step->run(batch);
    EXPECT_NEAR(done.loss(), loss.item<double>(), 1e-11);
    EXPECT_NEAR(done.gradient_norm(), norm, 1e-10);
    for (std::size_t rank = 0; rank < net.modules.size(); ++rank)
      if (const Tensor* const one = net.modules[rank]->named_parameters().find("table")) {
        EXPECT_TRUE(one->cpu().equal(net.modules[0]->named_parameters()["table"].cpu())) << rank;
        EXPECT_TRUE(torch::allclose(one->cpu(), table, 1e-8, 1e-10)) << rank;
        EXPECT_FALSE(one->grad().defined());
      }
  }
}

TEST(Stages, ARefusalBesideATieLosesNoStep) {
  const Shape shape{1, 3};
  const sim::Simulation box = cards(shape.ranks());
  TiedNet clean(box, shape, plain(3)), run(box, shape, plain(3));
  for (int card = 0; card < shape.ranks(); ++card)
    for (std::uint64_t request = 1;; ++request) {
      const Tensors batch = TiedNet::words(7);
      const double expected = clean.step->run(batch).loss();
      Committed done;
      {
        const sim::InjectionScope scope(box.card(card), sim::once(request));
        done = run.step->run(batch);
      }
      ASSERT_EQ(done.loss(), expected) << "card " << card << ", request " << request;
      for (std::size_t rank = 0; rank < run.modules.size(); ++rank) {
        const auto ours = run.modules[rank]->parameters(),
                   right = clean.modules[rank]->parameters();
        for (std::size_t i = 0; i < ours.size(); ++i) {
          ASSERT_TRUE(ours[i].cpu().equal(right[i].cpu()));
          ASSERT_FALSE(ours[i].grad().defined());
        }
      }
      if (done.attempts == 1) break;
    }
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

// ---- Cutting ----

TEST(EvenPieces, MakeTheLargestAsSmallAsPossible) {
  const auto cut = [](const std::vector<std::int64_t>& numbers, std::size_t pieces) {
    return even_pieces(numbers, pieces);
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(cut({5, 5, 5, 5}, 2), ElementsAre(2, 2));
  EXPECT_THAT(cut({9, 1, 1, 1}, 2), ElementsAre(1, 3));
  EXPECT_THAT(cut({1, 1, 1, 9}, 3), ::testing::SizeIs(3));
  EXPECT_THAT(cut({0, 0, 0}, 3), ElementsAre(1, 1, 1));
  EXPECT_THAT(cut({7}, 1), ElementsAre(1));
  EXPECT_THROW(static_cast<void>(cut({7}, 2)), UsageError);
}

TEST(Split, RefusesWhatDoesNotGoTogether) {
  const sim::Simulation box = cards(4);
  const auto net = [] { return layers(2, torch::kFloat); };
  const std::vector<c10::Device> two{box.device(0), box.device(1)};
  EXPECT_THROW(Split(net(), {.devices = {}}), UsageError);
  EXPECT_THROW(Split(net(), {.devices = two, .replicas = 3}), UsageError);
  EXPECT_THROW(Split(net(), {.devices = two, .modules = {4}}), UsageError);
  EXPECT_THROW(Split(net(), {.devices = two, .modules = {4, 1}}), UsageError);
  EXPECT_THROW(Split(net(), {.devices = two, .modules = {0, 4}}), UsageError);
  torch::nn::Sequential shared(torch::nn::Linear(kHidden, kHidden));
  const torch::nn::Linear twice(kHidden, kHidden);
  shared->push_back(twice);
  shared->push_back(twice);
  EXPECT_THROW(Split(shared, {.devices = two, .modules = {2, 1}}), UsageError);
}

TEST(Split, NamesAreThoseOfTheWhole) {
  const sim::Simulation box = cards(3);
  const auto net = layers(4, torch::kFloat);
  std::vector<std::string> names;
  for (const auto& one : net->named_parameters()) names.push_back(one.key());
  Split split(net, {.devices = {box.device(0), box.device(1), box.device(2)}});
  std::vector<std::string> of_stages;
  for (std::size_t rank = 0; rank < split.ranks(); ++rank)
    for (const auto& one : split.stage(rank).named_parameters()) {
      of_stages.push_back(one.key());
      EXPECT_EQ(one->device(), box.device(static_cast<int>(rank)));
    }
  EXPECT_EQ(of_stages, names);
}

}  // namespace
}  // namespace headroom::train

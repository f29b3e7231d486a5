// The code of docs/guides/several-networks.md, as it stands there: memory runs out at each request
// of two steps, and the result is that of a run without it.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>

#include "headroom/libtorch/on.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"
#include "headroom/train/step.h"

namespace headroom::train {
namespace {

using torch::Tensor;

constexpr std::int64_t kBatchRows = 6;

// What is left after two steps; `refused`: the request that memory does not suffice for, 0: none.
struct Left {
  Tensors tensors;
  std::uint64_t requests = 0;
};
using Run = std::function<Tensors(c10::Device, const std::function<void()>& when_ready)>;

Left left_by(const Run& run, std::uint64_t refused) {
  const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
  torch::manual_seed(1);
  std::optional<sim::InjectionScope> scope;
  Left left;
  std::uint64_t before = 0;
  for (const Tensor& tensor : run(box.device(0), [&] {
         before = box.card(0).requests();
         if (refused > 0) scope.emplace(box.card(0), sim::once(refused));
       }))
    left.tensors.push_back(tensor.detach().cpu());
  left.requests = box.card(0).requests() - before;
  return left;
}

void expect_the_same_after_each_refusal(const Run& run) {
  const Left right = left_by(run, 0);
  for (std::uint64_t refused = 1; refused <= right.requests; ++refused) {
    const Left ours = left_by(run, refused);
    for (std::size_t i = 0; i < right.tensors.size(); ++i)
      ASSERT_TRUE(ours.tensors[i].equal(right.tensors[i])) << "request " << refused << ", " << i;
  }
}

// ---- State that is carried from batch to batch ----

Tensors carried_state(c10::Device device, const std::function<void()>& when_ready) {
  auto cell = libtorch::on(device, [] { return torch::nn::GRUCell(3, 4); });
  const auto optimizer = optim::make_sgd(
      cell->parameters(), {.learning_rate = 0.1, .form = optim::OptimizerForm::fused});
  Tensor state = torch::zeros({kBatchRows, 4}, device);
  Step step(*cell, *optimizer,
            {.loss =
                 [&](const Tensors& rows) {
                   const Tensor next = cell->forward(rows[0], rows[1].clone());
                   rows[1].copy_(next.detach());
                   return next.square().mean();
                 }},
            {.plan = {.micro_batch = 4}});
  when_ready();
  for (int i = 0; i < 2; ++i) {
    step.run({torch::ones({kBatchRows, 3}), state});
  }
  Tensors all = cell->parameters();
  all.push_back(state);
  return all;
}

TEST(SeveralNetworks, CarryStateFromBatchToBatch) {
  expect_the_same_after_each_refusal(carried_state);
}

// The parts of a batch each bring the state of their own rows.
TEST(SeveralNetworks, CarryTheStateOfEachRowOnce) {
  const auto on_cpu = [](std::int64_t micro_batch) {
    torch::manual_seed(1);
    torch::nn::GRUCell cell(3, 4);
    const auto optimizer =
        optim::make_sgd(cell->parameters(), {.form = optim::OptimizerForm::fused});
    Tensor state = torch::zeros({kBatchRows, 4});
    Step step(*cell, *optimizer,
              {.loss =
                   [&](const Tensors& rows) {
                     const Tensor next = cell->forward(rows[0], rows[1].clone());
                     rows[1].copy_(next.detach());
                     return next.square().mean();
                   }},
              {.plan = {.micro_batch = micro_batch}});
    for (int i = 0; i < 3; ++i) static_cast<void>(step.run({torch::ones({kBatchRows, 3}), state}));
    return state;
  };
  EXPECT_TRUE(on_cpu(2).allclose(on_cpu(0), 1e-5, 1e-6));
  EXPECT_GT(on_cpu(2).abs().max().item<float>(), 0.1);
}

// ---- A loss over pairs of rows ----

Tensor contrastive(const Tensor& one, const Tensor& other) {
  const Tensor logits = torch::matmul(one, other.t()) / 0.1;
  return torch::nn::functional::cross_entropy(logits, torch::arange(one.size(0), logits.device()));
}

TEST(SeveralNetworks, KeepABatchWholeWhoseRowsDependOnEachOther) {
  const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
  torch::manual_seed(1);
  auto net = libtorch::on(box.device(0), [] { return torch::nn::Linear(3, 4); });
  const auto optimizer =
      optim::make_adamw(net->parameters(), {.form = optim::OptimizerForm::fused});
  std::vector<Event> events;
  const Objective objective{.loss = [&](const Tensors& rows) {
    return contrastive(net->forward(rows[0]), net->forward(rows[1]));
  }};
  Step step(*net, *optimizer, objective, {.ladder = {.min_micro_batch = kBatchRows}});
  const Tensors batch{torch::randn({kBatchRows, 3}), torch::randn({kBatchRows, 3})};
  const sim::InjectionScope scope(box.card(0), sim::every(7));
  for (int i = 0; i < 3; ++i) {
    try {
      const Committed done = step.run(batch);
      EXPECT_EQ(largest_part(done.plan, kBatchRows), kBatchRows);
    } catch (const c10::OutOfMemoryError&) {
    }
    EXPECT_EQ(largest_part(step.plan(), kBatchRows), kBatchRows);
  }
  EXPECT_NE(step.last_failure(), nullptr);
}

}  // namespace
}  // namespace headroom::train

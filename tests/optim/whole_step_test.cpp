// Every request of a whole training step is refused in turn: in the forward and the backward pass,
// in clipping and in the optimizer. Then the attempt is undone, and repeated.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>

#include "headroom/libtorch/on.h"
#include "headroom/libtorch/random_state.h"
#include "headroom/libtorch/settle.h"
#include "headroom/optim/clip.h"
#include "headroom/optim/loss_scaler.h"
#include "headroom/optim/optimizer.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"

namespace headroom::optim {
namespace {

using Tensors = std::vector<at::Tensor>;

struct Way {
  const char* name;
  std::function<std::unique_ptr<Optimizer>(const Tensors&)> make;
  bool commits = false;
  bool scales = false;  // the loss
};

// What a training loop has.
class Trainer {
 public:
  Trainer(const Way& way, c10::Device device)
      : way_(way),
        net_(libtorch::on(device,
                          [] {
                            torch::manual_seed(3);
                            return torch::nn::Sequential(torch::nn::Linear(8, 24),
                                                         torch::nn::ReLU(), torch::nn::Dropout(0.5),
                                                         torch::nn::Linear(24, 4));
                          })),
        batch_(torch::ones({6, 8}).to(device)),
        optimizer_(way.make(net_->parameters())) {
    optimizer_->protect();
    // Afterwards there is what lives from the first step on: the workspaces of matrix products,
    // and the scaler's factor.
    (way.scales ? scaler_.scale(loss()) : loss()).backward();
    optimizer_->zero_grad();
    scaler_.abandon();
    torch::manual_seed(4);
  }

  void reserve() {
    optimizer_->reserve();
    if (way_.commits && way_.scales) scaler_.reserve(*optimizer_);
  }

  // Throws c10::OutOfMemoryError, and then has not done anything.
  void step() {
    const std::vector<c10::Device> devices = libtorch::devices_of(optimizer_->parameters());
    const libtorch::RandomState random(devices);
    at::Tensor last;
    try {
      last = loss();
      (way_.scales ? scaler_.scale(last) : last).backward();
      if (way_.scales) scaler_.unscale(*optimizer_);
      clip_gradients(optimizer_->parameters(), 0.1);
      update();
    } catch (...) {
      libtorch::settle(devices);
      last.reset();
      optimizer_->zero_grad();
      scaler_.abandon();
      random.restore();
      throw;
    }
    if (way_.scales) scaler_.update();
    optimizer_->zero_grad();
  }

  // Copies of everything that a step changes, on the CPU; empty tensors where there is no data.
  [[nodiscard]] Tensors all() const {
    Tensors copies;
    for (std::size_t i = 0; i < optimizer_->parameters().size(); ++i) {
      const at::Tensor& parameter = optimizer_->parameters()[i];
      EXPECT_FALSE(parameter.grad().defined());
      copies.push_back(parameter.detach().cpu().clone());
      for (const auto& [name, state] : optimizer_->state(i)) copies.push_back(state.cpu().clone());
    }
    copies.push_back(torch::tensor(scaler_.factor()));
    copies.push_back(torch::tensor(scaler_.good_steps()));
    copies.push_back(torch::rand({2}));  // of the generator that the next step begins with
    return copies;
  }

 private:
  [[nodiscard]] at::Tensor loss() { return net_->forward(batch_).square().mean(); }
  void update() {
    if (way_.scales && way_.commits)
      scaler_.commit(*optimizer_);
    else if (way_.scales)
      scaler_.step(*optimizer_);
    else if (way_.commits)
      optimizer_->commit();
    else
      optimizer_->step();
  }

  Way way_;
  torch::nn::Sequential net_;
  at::Tensor batch_;
  std::unique_ptr<Optimizer> optimizer_;
  LossScaler scaler_{{.first = 8}};
};

class WholeStep : public testing::TestWithParam<std::tuple<Way, sim::Mode>> {};

void expect_same(const Tensors& ours, const Tensors& right, sim::Mode mode) {
  ASSERT_EQ(ours.size(), right.size());
  for (std::size_t i = 0; mode == sim::Mode::compute && i < right.size(); ++i)
    EXPECT_TRUE(at::equal(ours[i], right[i])) << "tensor " << i;
}

// A scaler's own reserve() comes after the optimizer's: what that made, stays.
TEST_P(WholeStep, HasAllThatItReservesOrNothing) {
  const auto& [way, mode] = GetParam();
  std::optional<Tensors> right;
  std::uint64_t refused = 0;  // none, then each
  for (bool met = true; met; ++refused) {
    const sim::Simulation box = sim::simulate("1GiB", {.mode = mode});
    Trainer trainer(way, box.device(0));
    const auto used = [&] { return box.card(0).statistics().requested_bytes.all.current; };
    const auto used_before = used();
    try {
      const sim::InjectionScope scope(box.card(0),
                                      refused == 0 ? sim::any_of({}) : sim::once(refused));
      trainer.reserve();
      met = refused == 0;
    } catch (const c10::OutOfMemoryError&) {
      const bool of_two = way.scales && way.commits;
      EXPECT_TRUE(of_two || used() == used_before) << "request " << refused;
      trainer.reserve();
    }
    trainer.step();
    const Tensors after = trainer.all();
    if (!right)
      right = after;
    else
      expect_same(after, *right, mode);
  }
  EXPECT_GT(refused, 2U);
}

TEST_P(WholeStep, IsUndoneAndRepeatedWhereverMemoryRunsOut) {
  const auto& [way, mode] = GetParam();
  for (const int earlier : {0, 1}) {
    std::optional<Tensors> right;
    std::uint64_t refused = 0;  // none, then each
    for (bool met = true; met; ++refused) {
      const sim::Simulation box = sim::simulate("1GiB", {.mode = mode});
      Trainer trainer(way, box.device(0));
      if (way.commits) trainer.reserve();
      for (int step = 0; step < earlier; ++step) trainer.step();
      const auto used = [&] { return box.card(0).statistics().requested_bytes.all.current; };
      const libtorch::RandomState random({box.device(0)});
      const Tensors before = trainer.all();
      random.restore();
      const auto used_before = used();
      if (refused != 0) {
        met = false;
        const sim::InjectionScope scope(box.card(0), sim::once(refused));
        try {
          trainer.step();
        } catch (const c10::OutOfMemoryError&) {
          met = true;
        }
        if (!met) break;
        SCOPED_TRACE("request " + std::to_string(refused));
        EXPECT_EQ(used(), used_before);
        const libtorch::RandomState again({box.device(0)});
        expect_same(trainer.all(), before, mode);
        again.restore();
      }
      trainer.step();
      trainer.step();
      const Tensors after = trainer.all();
      if (!right)
        right = after;
      else
        expect_same(after, *right, mode);
    }
    EXPECT_GT(refused, 20U);
  }
}

const std::vector<Way> kWays{
    {"adamw_loop", [](const Tensors& of) { return make_adamw(of, {.form = OptimizerForm::loop}); }},
    {"adamw_foreach", [](const Tensors& of) { return make_adamw(of); }},
    {"adamw_fused",
     [](const Tensors& of) { return make_adamw(of, {.form = OptimizerForm::fused}); }},
    {"adamw_commit",
     [](const Tensors& of) { return make_adamw(of, {.form = OptimizerForm::fused}); }, true},
    {"adam_loop",
     [](const Tensors& of) {
       return make_adam(of, {.weight_decay = 0.1, .amsgrad = true, .form = OptimizerForm::loop});
     }},
    {"adam_foreach",
     [](const Tensors& of) { return make_adam(of, {.weight_decay = 0.1, .amsgrad = true}); }},
    {"adam_fused",
     [](const Tensors& of) {
       return make_adam(of, {.amsgrad = true, .form = OptimizerForm::fused});
     }},
    {"adam_commit",
     [](const Tensors& of) {
       return make_adam(of, {.amsgrad = true, .form = OptimizerForm::fused});
     },
     true},
    {"sgd_loop",
     [](const Tensors& of) {
       return make_sgd(of, {.momentum = 0.9, .weight_decay = 0.1, .form = OptimizerForm::loop});
     }},
    {"sgd_foreach",
     [](const Tensors& of) { return make_sgd(of, {.momentum = 0.9, .nesterov = true}); }},
    {"sgd_fused",
     [](const Tensors& of) {
       return make_sgd(of, {.momentum = 0.9, .form = OptimizerForm::fused});
     }},
    {"sgd_commit",
     [](const Tensors& of) {
       return make_sgd(of, {.momentum = 0.9, .form = OptimizerForm::fused});
     },
     true},
    {"adafactor_loop", [](const Tensors& of) { return make_adafactor(of); }},
    {"adafactor_foreach",
     [](const Tensors& of) { return make_adafactor(of, {.form = OptimizerForm::foreach}); }},
    {"adafactor_commit", [](const Tensors& of) { return make_adafactor(of); }, true},
    {"adafactor_hf", [](const Tensors& of) { return make_adafactor_hf(of, {.beta1 = 0.9}); }},
    {"scaled_adamw_foreach", [](const Tensors& of) { return make_adamw(of); }, false, true},
    {"scaled_adamw_commit",
     [](const Tensors& of) { return make_adamw(of, {.form = OptimizerForm::fused}); }, true, true},
};

INSTANTIATE_TEST_SUITE_P(OfEachKind, WholeStep,
                         testing::Combine(testing::ValuesIn(kWays),
                                          testing::Values(sim::Mode::compute,
                                                          sim::Mode::shape_only)),
                         [](const auto& of) {
                           return std::string(std::get<0>(of.param).name) +
                                  (std::get<1>(of.param) == sim::Mode::compute ? "" : "_no_data");
                         });

}  // namespace
}  // namespace headroom::optim

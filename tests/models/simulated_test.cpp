#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/base/error.h"
#include "headroom/libtorch/on.h"
#include "headroom/models/batch.h"
#include "headroom/models/initialise.h"
#include "headroom/sim/simulate.h"
#include "tests/models/tiny_models.h"

namespace headroom::models {
namespace {

double trained_loss(c10::Device device) {
  const Settings settings{.checkpointing = {.how = nn::Recompute::nonreentrant}};
  const auto model = libtorch::on(device, [&] { return build(tiny_gpt2(), settings); });
  initialise(*model);
  const Output output = model->run(random_batch(*model, {.rows = 2, .length = 4}, device));
  output.loss.backward();
  EXPECT_TRUE(parameter_of(*model, "transformer.wte.weight").grad().defined());
  return output.loss.cpu().item<double>();
}

// Checkpointing brings our autograd engine, which counts devices at its first backward pass. Cards
// that came later had no thread in it, and the backward pass on them ended in an assertion.
TEST(CardsMadeAfterTrainingOnTheCpu, TakeBackwardPasses) {
  EXPECT_GT(trained_loss(at::kCPU), 0);
  const auto box = sim::simulate("2x1GiB", {.mode = sim::Mode::compute});
  EXPECT_GT(trained_loss(box.device(1)), 0);
  EXPECT_GT(trained_loss(at::kCPU), 0);
}

// Which layers are checkpointed may change between steps; it changes memory and no result.
TEST(Checkpointing, ChangesBetweenSteps) {
  const auto box = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  const c10::Device device = box.device(0);
  const auto model = libtorch::on(device, [&] { return tiny("gpt2", R"({"n_layer":4})"); });
  initialise(*model);
  model->train();
  const Batch batch = random_batch(*model, {.rows = 2, .length = 8}, device);
  struct Step {
    std::int64_t kept = 0;
    std::vector<at::Tensor> gradients;
  };
  const auto step = [&](const Checkpointing& checkpointing) {
    model->set_checkpointing(checkpointing);
    at::Generator generator = box.card(0).generator();
    generator.set_current_seed(5);
    const std::int64_t before = box.card(0).statistics().allocated_bytes.all.current;
    Output output = model->run(batch);
    Step done{.kept = box.card(0).statistics().allocated_bytes.all.current - before};
    output.loss.backward();
    for (at::Tensor parameter : model->module().parameters()) {
      done.gradients.push_back(parameter.grad().cpu());
      parameter.mutable_grad().reset();
    }
    return done;
  };
  constexpr auto kAgain = nn::Recompute::nonreentrant;
  const Step plain = step({}), all = step({.how = kAgain}),
             second = step({.how = kAgain, .every = 2}),
             chosen = step({.how = kAgain, .layers = {0, 1, 2}}), none = step({});
  EXPECT_EQ(none.kept, plain.kept);
  EXPECT_LT(second.kept, plain.kept);
  EXPECT_LT(chosen.kept, second.kept);
  EXPECT_LT(all.kept, chosen.kept);
  EXPECT_EQ((plain.kept - all.kept) / 4, plain.kept - step({.how = kAgain, .layers = {3}}).kept);
  for (const Step* one : {&all, &second, &chosen, &none})
    for (std::size_t i = 0; i < plain.gradients.size(); ++i)
      EXPECT_TRUE(at::equal(one->gradients[i], plain.gradients[i])) << "parameter " << i;
  EXPECT_THROW(model->set_checkpointing({.every = 0}), UsageError);
}

}  // namespace
}  // namespace headroom::models

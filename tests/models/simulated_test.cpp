#include <gmock/gmock.h>
#include <torch/torch.h>

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

}  // namespace
}  // namespace headroom::models

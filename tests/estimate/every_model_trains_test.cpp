// Every model of the catalogue trains: in compute mode, with numbers, in every form that its type
// has. The sizes are cut down, the rest is as published.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "headroom/libtorch/on.h"
#include "headroom/model/tasks.h"
#include "headroom/models/batch.h"
#include "headroom/models/initialise.h"
#include "headroom/models/model.h"
#include "headroom/optim/optimizer.h"
#include "headroom/sim/simulate.h"
#include "tests/estimate/small_models.h"

namespace headroom::estimate {
namespace {

using models::Model;
using torch::Tensor;

// The faults in a step's gradients, one per line.
std::vector<std::string> faults_of(Model& model, const Tensor& loss) {
  std::vector<std::string> faults;
  if (!std::isfinite(loss.item<double>())) faults.emplace_back("a loss that is not finite");
  for (const auto& item : model.module().named_parameters()) {
    const Tensor& gradient = item.value().grad();
    if (!item.value().requires_grad()) continue;
    if (!gradient.defined())
      faults.push_back(item.key() + " has no gradient");
    else if (!gradient.cpu().isfinite().all().item<bool>())
      faults.push_back(item.key() + " has a gradient that is not finite");
    else if (gradient.cpu().eq(0).all().item<bool>())
      faults.push_back(item.key() + " has a gradient of zeros");
  }
  return faults;
}

std::vector<std::string> faults_of_a_step(const sim::Simulation& box,
                                          const model::ModelConfig& config,
                                          const models::Settings& settings) {
  torch::manual_seed(1);
  at::Generator(box.card(0).generator()).set_current_seed(1);
  const c10::Device device = box.device(0);
  const auto model = libtorch::on(device, [&] { return models::build(config, settings); });
  models::initialise(*model);
  model->train();
  const models::Batch batch = models::random_batch(
      *model, {.rows = 8, .length = kSmallLength, .image = kSmallImage}, device);
  const auto adamw = optim::make_adamw(model->module().parameters());
  const Tensor loss = model->run(batch).loss;
  loss.backward();
  std::vector<std::string> faults = faults_of(*model, loss);
  const Tensor before = model->module().parameters().front().cpu();
  adamw->step();
  if (before.equal(model->module().parameters().front().cpu()))
    faults.emplace_back("the optimizer changed nothing");
  return faults;
}

sim::Simulation computing_box() {
  return sim::simulate("1x8GiB", {.mode = sim::Mode::compute});
}

TEST(EveryModelOfTheCatalogue, TrainsAStepWithFiniteLossAndGradientsForAllItsParameters) {
  const sim::Simulation box = computing_box();
  std::size_t tried = 0;
  for (const model::CatalogueModel& model : model::catalogue_models()) {
    EXPECT_THAT(faults_of_a_step(box, small(model.name).config, {}), testing::IsEmpty())
        << model.name;
    ++tried;
  }
  EXPECT_GE(tried, 90U);
}

class EveryType : public testing::TestWithParam<std::string> {};

// As BERT's causal head asks for.
model::ModelConfig config_for(const std::string& name, models::Task task) {
  const bool is_encoder = name.find("bert") != std::string::npos;
  return task == models::Task::causal_lm && is_encoder ? small(name, {{"is_decoder", true}}).config
                                                       : small(name).config;
}

TEST_P(EveryType, TrainsForEachOfItsTasksWithEitherAttentionAndAnyCheckpointing) {
  const sim::Simulation box = computing_box();
  for (const models::Task task : model::tasks_of(small(GetParam()).config)) {
    const model::ModelConfig config = config_for(GetParam(), task);
    for (const models::Attention attention : {models::Attention::sdpa, models::Attention::eager})
      for (const nn::Recompute how :
           {nn::Recompute::none, nn::Recompute::nonreentrant, nn::Recompute::reentrant})
        EXPECT_THAT(
            faults_of_a_step(
                box, config,
                {.task = task, .attention = attention, .checkpointing = {.how = how, .every = 1}}),
            testing::IsEmpty())
            << model::to_string(task) << ", " << model::to_string(attention) << ", checkpointing "
            << static_cast<int>(how);
  }
}

std::string name_of(const testing::TestParamInfo<std::string>& info) {
  return small(info.param).config.type();
}

INSTANTIATE_TEST_SUITE_P(All, EveryType, testing::ValuesIn(one_of_each_type()), name_of);

}  // namespace
}  // namespace headroom::estimate

// Training steps under less and less memory: each has to commit under a plan of its own, and the
// weights have to be those of a run without limit that is given the same plans. Limits are the
// share of the card that the process may reserve, so the refusals are the allocator's own.
#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include "bench/small_llama.h"
#include "headroom/libtorch/failure.h"
#include "headroom/libtorch/on.h"
#include "headroom/memory/clear.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/models/batch.h"
#include "headroom/models/initialise.h"
#include "headroom/optim/optimizer.h"
#include "headroom/train/model_objective.h"
#include "headroom/train/step.h"
#include "tests/gpu_check/check.h"
#include "tests/gpu_check/training.h"

namespace headroom::gpu_check {
namespace {

struct Sizes {
  long layers = 2, width = 128;
  std::int64_t rows = 8, length = 64;
};

struct Trained {
  std::shared_ptr<models::Model> model;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<train::Step> step;
};

Trained trained_on(c10::Device device, const Sizes& sizes, bool alone) {
  Trained all;
  at::Generator generator = at::globalContext().defaultGenerator(device);
  generator.set_current_seed(1);
  all.model = libtorch::on(device, [&] {
    // Fused attention adds up gradients in any order.
    return models::build({bench::small_llama(sizes.layers, sizes.width, sizes.length), "config"},
                         {.attention = models::Attention::eager});
  });
  models::initialise(*all.model);
  all.model->train();
  all.optimizer =
      optim::make_adamw(all.model->module().parameters(), {.form = optim::OptimizerForm::fused});
  train::StepOptions options{.max_grad_norm = 1};
  options.prices = options.adapts = alone;
  options.ladder.max_retries = 10;
  options.ladder.room = {.least = Bytes{0}, .share = 0};
  all.step = std::make_unique<train::Step>(all.model->module(), *all.optimizer,
                                           train::objective_of(all.model), options);
  return all;
}

std::vector<at::Tensor> values_of(const Trained& trained) {
  std::vector<at::Tensor> values;
  for (const at::Tensor& parameter : trained.model->module().parameters())
    values.push_back(parameter.detach().clone());
  return values;
}

}  // namespace

Outcome check_train_step(Place& place) {
  const c10::Device device = place.open();
  const Sizes sizes = place.is_simulated() ? Sizes{} : Sizes{8, 1024, 32, 512};
  const Trained guarded = trained_on(device, sizes, true);
  at::manual_seed(2);
  const train::Tensors batch = train::tensors_of(
      models::random_batch(*guarded.model, {.rows = sizes.rows, .length = sizes.length}, at::kCPU));
  guarded.step->prepare(batch);
  std::vector<std::string> complaints;
  if (guarded.step->prices() == nullptr)
    complaints.push_back("no prices: " + guarded.step->why_unpriced());
  std::optional<Bytes> needed;
  if (const train::Prices* const prices = guarded.step->prices())
    if (const auto all = prices->needed({}, {.rows = sizes.rows})) needed = all->largest();
  std::vector<train::Plan> plans;
  Json steps = Json::array();
  const auto run = [&](std::optional<Bytes> limit) {
    (void)memory::clear_gpu_memory();
    place.limit(limit);
    try {
      const train::Committed done = guarded.step->run(batch);
      plans.push_back(done.plan);
      steps.push_back({{"limit", or_null(limit)},
                       {"attempts", done.attempts},
                       {"plan", to_string(done.plan)},
                       {"loss", done.loss()}});
      return true;
    } catch (const std::exception& error) {
      place.limit({});
      if (!oom::is_out_of_memory(libtorch::judge(std::current_exception()))) throw;
      steps.push_back({{"limit", or_null(limit)}, {"failed", true}});
      return false;
    }
  };
  run({});
  run({});
  const Bytes peak = memory::get_gpu_memory_stats(device).max_reserved;
  for (const double share : {0.9, 0.8, 0.7, 0.6, 0.5, 0.4})
    if (!run(Bytes{std::llround(share * static_cast<double>(peak.count))})) break;
  run({});
  place.limit({});
  const std::size_t under_limits = plans.size() - 3;
  if (under_limits < 3) complaints.push_back("fewer than 3 steps committed under a limit");

  const std::vector<at::Tensor> values = values_of(guarded);
  const Trained twin = trained_on(device, sizes, false);
  for (const train::Plan& plan : plans) {
    twin.step->set_plan(plan);
    static_cast<void>(twin.step->run(batch));
  }
  if (!equal_to_the_bit(values_of(twin), values))
    complaints.push_back("other weights than a run without limit under the same plans");
  return judged(complaints,
                "a step that needs " + to_string(peak) + " (predicted " +
                    (needed ? to_string(*needed) : "nothing") + ") committed under " +
                    std::to_string(under_limits) + " limits, the last plan " +
                    to_string(plans[plans.size() - 2]) +
                    "; weights equal to the bit to a run with the same plans",
                {{"peak_reserved", peak.count}, {"needed", or_null(needed)}, {"steps", steps}});
}

}  // namespace headroom::gpu_check

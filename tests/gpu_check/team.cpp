// Two cards train one model: as replicas, which divide the rows of a batch, or as stages, which
// have half of its layers each. Memory of each card as predicted, weights to the bit those of a run
// with the same plans after memory ran out on the second card, losses those of one card.
#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <cmath>

#include "bench/small_llama.h"
#include "headroom/libtorch/on.h"
#include "headroom/memory/clear.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/models/batch.h"
#include "headroom/models/initialise.h"
#include "headroom/optim/optimizer.h"
#include "headroom/train/model_team.h"
#include "headroom/train/step.h"
#include "tests/gpu_check/check.h"
#include "tests/gpu_check/training.h"

namespace headroom::gpu_check {
namespace {

struct TeamSizes {
  long layers = 2, width = 128;
  std::int64_t rows = 8, length = 64;
};

// A model on some cards, with the same values each time.
struct TeamTrained {
  train::RankModels models;
  std::vector<std::unique_ptr<optim::Optimizer>> optimizers;
  std::unique_ptr<train::Step> step;
};

TeamTrained team_on(const std::vector<c10::Device>& devices, int stages, const TeamSizes& sizes,
                    bool is_priced) {
  TeamTrained all;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    at::Generator generator = at::globalContext().defaultGenerator(devices[rank]);
    generator.set_current_seed(1);
    models::Settings settings{.attention = models::Attention::eager};  // adds up in a fixed order
    if (stages > 1)
      settings.part =
          train::even_parts(sizes.layers, stages)[rank % static_cast<std::size_t>(stages)];
    all.models.push_back(libtorch::on(devices[rank], [&] {
      return models::build({bench::small_llama(sizes.layers, sizes.width, sizes.length), "config"},
                           settings);
    }));
    models::initialise(*all.models.back());
    all.models.back()->train();
  }
  for (std::size_t rank = 0; rank < devices.size(); ++rank)
    all.optimizers.push_back(optim::make_adamw(train::own_parameters(all.models, stages, rank),
                                               {.form = optim::OptimizerForm::fused}));
  train::StepOptions options{.max_grad_norm = 1};
  options.prices = options.adapts = is_priced;
  options.plan.micro_batch = 2;
  options.ladder.max_retries = 10;
  options.ladder.room = {.least = Bytes{0}, .share = 0};
  all.step =
      std::make_unique<train::Step>(train::team_of(all.models, all.optimizers, stages), options);
  return all;
}

std::vector<at::Tensor> values_of_team(const TeamTrained& trained) {
  std::vector<at::Tensor> values;
  for (const auto& model : trained.models)
    for (const at::Tensor& parameter : model->module().parameters())
      values.push_back(parameter.detach().cpu());
  return values;
}

Bytes peak_on(c10::Device device) {
  return memory::get_gpu_memory_stats(device).max_reserved;
}

}  // namespace

Outcome check_team(Place& place, int stages) {
  const std::vector<c10::Device> cards = place.open_up_to(2);
  if (cards.size() < 2) return not_run("two cards are needed, and CUDA has one here");
  const TeamSizes sizes = place.is_simulated() ? TeamSizes{} : TeamSizes{8, 1024, 32, 512};
  std::vector<std::string> complaints;
  TeamTrained team = team_on(cards, stages, sizes, true);
  at::manual_seed(2);
  const train::Tensors batch = train::tensors_of(models::random_batch(
      *team.models.back(), {.rows = sizes.rows, .length = sizes.length}, at::kCPU));
  team.step->prepare(batch);
  const train::Prices* const prices = team.step->prices();
  if (prices == nullptr) return failed("no prices: " + team.step->why_unpriced());
  std::vector<train::Plan> plans;
  std::vector<double> losses;
  const auto run = [&] {
    const train::Committed done = team.step->run(batch);
    plans.push_back(done.plan);
    losses.push_back(done.loss());
  };
  run();
  run();
  const std::int64_t rows_of_replica = stages > 1 ? sizes.rows : sizes.rows / 2;
  const auto peaks = prices->peaks(plans.back(), {.rows = rows_of_replica});
  Json figures{{"cards", Json::array()}};
  std::string words;
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const Bytes predicted = peaks ? peaks->of(stages > 1 ? rank : 0) : Bytes{};
    const Bytes peak = peak_on(cards[rank]);
    const double error = static_cast<double>(peak.count - predicted.count) /
                         static_cast<double>(std::max<std::int64_t>(predicted.count, 1));
    if (std::abs(error) > (place.is_simulated() ? 0 : 0.02))
      complaints.push_back(cards[rank].str() + " reserved " + to_string(peak) +
                           ", predicted were " + to_string(predicted));
    words += (words.empty() ? "" : ", ") + to_string(peak);
    figures["cards"].push_back({{"reserved", peak.count}, {"predicted", predicted.count}});
  }
  (void)memory::clear_gpu_memory();
  place.limit(Bytes{peak_on(cards[1]).count * 8 / 10}, 1);
  run();
  place.limit({}, 1);
  run();
  const std::vector<at::Tensor> values = values_of_team(team);

  const TeamTrained twin = team_on(cards, stages, sizes, false);
  for (const train::Plan& plan : plans) {
    twin.step->set_plan(plan);
    static_cast<void>(twin.step->run(batch));
  }
  if (!equal_to_the_bit(values_of_team(twin), values))
    complaints.push_back("other weights than a run without limit under the same plans");
  const TeamTrained one = team_on({cards[0]}, 1, sizes, false);
  for (const double loss : losses) {
    const double alone = one.step->run(batch).loss();
    if (std::abs(alone - loss) > 1e-4 * alone)
      complaints.push_back("loss " + std::to_string(loss) + ", on one card " +
                           std::to_string(alone));
  }
  figures["plan_under_a_limit"] = to_string(plans[2]);
  return judged(complaints,
                words + " reserved as predicted; memory ran out on " + cards[1].str() +
                    ", and the step committed with " + to_string(plans[2]) +
                    ", to the bit as a run with the same plans; losses of one card",
                figures);
}

}  // namespace headroom::gpu_check

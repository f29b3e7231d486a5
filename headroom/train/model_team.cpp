#include "headroom/train/model_team.h"

#include <torch/nn/module.h>

#include <cstdlib>
#include <map>
#include <numeric>
#include <string>

#include "headroom/base/error.h"
#include "headroom/base/text.h"

namespace headroom::train {
namespace {

// The parameters of the stages of a rank's replica that come before it.
std::map<std::string, at::Tensor> of_earlier_stages(const RankModels& models, int stages,
                                                    std::size_t rank) {
  std::map<std::string, at::Tensor> all;
  for (std::size_t earlier = rank - rank % static_cast<std::size_t>(stages); earlier < rank;
       ++earlier)
    for (const auto& one : models[earlier]->module().named_parameters())
      all.emplace(one.key(), one.value());
  return all;
}

}  // namespace

Tensors own_parameters(const RankModels& models, int stages, std::size_t rank) {
  const auto earlier = of_earlier_stages(models, stages, rank);
  Tensors own;
  for (const auto& one : models.at(rank)->module().named_parameters())
    if (one.value().requires_grad() && !earlier.contains(one.key())) own.push_back(one.value());
  return own;
}

Team team_of(const RankModels& models,
             const std::vector<std::unique_ptr<optim::Optimizer>>& optimizers, int stages,
             plan::Pipeline pipeline, const ModelObjectiveOptions& options) {
  Team team{.stages = stages, .pipeline = pipeline};
  for (std::size_t rank = 0; rank < models.size(); ++rank) {
    const auto earlier = of_earlier_stages(models, stages, rank);
    for (const auto& one : models[rank]->module().named_parameters())
      if (const auto weight = earlier.find(one.key()); weight != earlier.end())
        team.ties.push_back({weight->second, one.value()});
    team.ranks.push_back(
        {models[rank]->module(), *optimizers.at(rank), objective_of(models[rank], options)});
  }
  return team;
}

std::vector<models::Part> even_parts(std::int64_t layers, int stages) {
  if (stages < 1 || stages > layers)
    throw UsageError(
        expectation("split", "1 to " + std::to_string(layers) + " stages", std::to_string(stages)));
  std::vector<std::int64_t> counts(static_cast<std::size_t>(stages), layers / stages);
  // One more for each of the stages nearest to the middle.
  for (std::int64_t more = layers % stages; more > 0; --more) {
    std::size_t best = 0;
    const auto off_middle = [&](std::size_t stage) {
      return std::abs(2 * static_cast<std::int64_t>(stage) - (stages - 1));
    };
    bool found = false;
    for (std::size_t stage = 0; stage < counts.size(); ++stage)
      if (counts[stage] == layers / stages && (!found || off_middle(stage) < off_middle(best))) {
        best = stage;
        found = true;
      }
    ++counts[best];
  }
  return parts_of(counts, layers);
}

std::vector<models::Part> parts_of(const std::vector<std::int64_t>& counts, std::int64_t layers) {
  std::vector<models::Part> parts;
  std::int64_t first = 0;
  bool is_right = !counts.empty();
  for (const std::int64_t count : counts) {
    is_right = is_right && count > 0;
    parts.push_back({first, count});
    first += count;
  }
  if (is_right && first == layers) return parts;
  std::vector<std::string> words;
  for (const std::int64_t count : counts) words.push_back(std::to_string(count));
  throw UsageError(expectation("split",
                               "numbers of layers that add up to " + std::to_string(layers),
                               join(words, ","), "even ones"));
}

}  // namespace headroom::train

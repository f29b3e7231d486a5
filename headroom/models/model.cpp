#include "headroom/models/model.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <map>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/model/tasks.h"
#include "headroom/models/detail/family.h"

namespace headroom::models {
namespace {

using detail::Build;
using model::ModelConfig;

const std::map<std::string, Build>& builders() {
  static const std::map<std::string, Build> all = {
      {"bert", detail::bert_family()},         {"distilbert", detail::distilbert_family()},
      {"llama", detail::llama_family()},       {"mistral", detail::llama_family()},
      {"qwen2", detail::llama_family()},       {"qwen3", detail::llama_family()},
      {"roberta", detail::bert_family()},      {"t5", detail::t5_family()},
      {"gemma", detail::gemma_family()},       {"gemma2", detail::gemma_family()},
      {"phi3", detail::phi3_family()},         {"mixtral", detail::mixtral_family()},
      {"gpt2", detail::gpt2_family()},         {"gpt_neo", detail::gpt_neo_family()},
      {"gpt_neox", detail::gpt_neox_family()}, {"opt", detail::opt_family()},
      {"phi", detail::phi_family()},           {"vit", detail::vit_family()},
      {"deit", detail::vit_family()},          {"resnet", detail::resnet_family()},
      {"convnext", detail::convnext_family()},
  };
  return all;
}

std::string names_of(const std::vector<Task>& tasks) {
  std::vector<std::string> names;
  for (const Task task : tasks) names.emplace_back(model::to_string(task));
  return join(names, ", ");
}

void check(const Settings& settings) {
  if (settings.checkpointing.every < 1)
    throw UsageError(expectation("build", "checkpointing of every layer, or every n-th",
                                 "every " + std::to_string(settings.checkpointing.every), "1"));
  if (settings.loss_chunk < 0)
    throw UsageError(expectation("build", "chunks of a loss of 1 token or more, or 0 for all",
                                 std::to_string(settings.loss_chunk)));
}

}  // namespace

void Model::train(bool on) {
  module().train(on);
}

std::shared_ptr<Model> build(const ModelConfig& config, const Settings& settings) {
  check(settings);
  const std::vector<Task> tasks = model::tasks_of(config);
  const Task task = settings.task.value_or(tasks.front());
  if (std::find(tasks.begin(), tasks.end(), task) == tasks.end())
    throw UsageError(expectation("build", "a task that " + config.type() + " models have",
                                 model::to_string(task), names_of(tasks)));
  const bool of_tokens =
      task != Task::sequence_classification && task != Task::image_classification;
  if (settings.loss_chunk > 0 && !of_tokens)
    throw UsageError(expectation("build", "a loss over tokens, to take it in chunks",
                                 model::to_string(task), "the full loss"));
  return builders().at(config.type())(config, task, settings);
}

}  // namespace headroom::models

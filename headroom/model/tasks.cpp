#include "headroom/model/tasks.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace headroom::model {
namespace {

std::vector<Task> tasks_of_type(std::string_view type) {
  const auto is_one_of = [&](auto... types) { return ((type == types) || ...); };
  if (is_one_of("convnext", "deit", "resnet", "vit")) return {Task::image_classification};
  if (is_one_of("bert", "roberta"))
    return {Task::masked_lm, Task::sequence_classification, Task::causal_lm};
  if (type == "distilbert") return {Task::masked_lm, Task::sequence_classification};
  if (type == "t5") return {Task::seq2seq_lm};
  return {Task::causal_lm, Task::sequence_classification};
}

// Suffixes of transformers' class names.
struct Ending {
  std::string_view architecture;
  Task task;
};
constexpr std::array<Ending, 6> kEndings{
    {{"ForCausalLM", Task::causal_lm},
     {"LMHeadModel", Task::causal_lm},
     {"ForMaskedLM", Task::masked_lm},
     {"ForSequenceClassification", Task::sequence_classification},
     {"ForImageClassification", Task::image_classification},
     {"ForConditionalGeneration", Task::seq2seq_lm}}};

}  // namespace

std::vector<Task> tasks_of(const ModelConfig& config) {
  std::vector<Task> tasks = tasks_of_type(config.type());
  for (const std::string& architecture : config.architectures())
    for (const Ending& ending : kEndings) {
      const auto usual = std::find(tasks.begin(), tasks.end(), ending.task);
      if (!architecture.ends_with(ending.architecture) || usual == tasks.end()) continue;
      std::rotate(tasks.begin(), usual, usual + 1);
      return tasks;
    }
  return tasks;
}

}  // namespace headroom::model

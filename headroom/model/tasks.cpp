#include "headroom/model/tasks.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string_view>

#include "headroom/base/error.h"
#include "headroom/base/text.h"

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

// Model types as transformers spells them in class names, where that is not "Llama" for "llama".
struct Spelled {
  std::string_view type, name;
};
constexpr std::array<Spelled, 9> kSpelled{{{"convnext", "ConvNext"},
                                           {"deit", "DeiT"},
                                           {"distilbert", "DistilBert"},
                                           {"gpt2", "GPT2"},
                                           {"gpt_neo", "GPTNeo"},
                                           {"gpt_neox", "GPTNeoX"},
                                           {"opt", "OPT"},
                                           {"resnet", "ResNet"},
                                           {"vit", "ViT"}}};

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

std::string architecture_of(const ModelConfig& config, Task task) {
  const auto ends_for = [&](std::string_view name) {
    return std::any_of(kEndings.begin(), kEndings.end(), [&](const Ending& ending) {
      return ending.task == task && name.ends_with(ending.architecture);
    });
  };
  for (const std::string& architecture : config.architectures())
    if (ends_for(architecture)) return architecture;
  const std::string& type = config.type();
  const auto spelled = std::find_if(kSpelled.begin(), kSpelled.end(),
                                    [&](const Spelled& one) { return one.type == type; });
  std::string name(spelled == kSpelled.end() ? "" : spelled->name);
  if (name.empty()) {
    name = type;
    name[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(name[0])));
  }
  if (task == Task::causal_lm && (type == "gpt2" || type == "bert")) return name + "LMHeadModel";
  const auto ending = std::find_if(kEndings.begin(), kEndings.end(),
                                   [&](const Ending& one) { return one.task == task; });
  return name + std::string(ending->architecture);
}

bool is_over_tokens(Task task) {
  return task != Task::sequence_classification && task != Task::image_classification;
}

Task task_for(const ModelConfig& config, std::optional<Task> asked) {
  const std::vector<Task> tasks = tasks_of(config);
  const Task task = asked.value_or(tasks.front());
  if (std::find(tasks.begin(), tasks.end(), task) == tasks.end()) {
    std::vector<std::string> names;
    for (const Task known : tasks) names.emplace_back(to_string(known));
    throw UsageError(expectation("task_for", "a task that " + config.type() + " models have",
                                 to_string(task), join(names, ", ")));
  }
  if (task == Task::causal_lm && config.has("is_decoder") && !config.flag("is_decoder"))
    config.refuse("is_decoder", "true (for causal-lm: without it every token sees the next one)");
  return task;
}

std::optional<std::int64_t> last_token_padding(const ModelConfig& config, std::int64_t rows) {
  const Json& said = config.at("pad_token_id");
  if (!said.is_null() && !said.is_number_integer())
    config.refuse("pad_token_id", "a whole number, or null");
  if (!said.is_null()) return said.get<std::int64_t>();  // a negative one matches no token
  if (rows != 1)
    throw UsageError(expectation("sequence classification",
                                 "a `pad_token_id` in " + config.source() +
                                     ", without which transformers classifies one row at a time",
                                 std::to_string(rows) + " rows", "--batch 1"));
  return {};
}

std::string problem_type(const ModelConfig& config) {
  if (config.is_null("problem_type")) return "";
  std::string type = config.text("problem_type");
  if (type != "regression" && type != "single_label_classification" &&
      type != "multi_label_classification")
    config.refuse("problem_type",
                  "regression, single_label_classification or multi_label_classification");
  return type;
}

}  // namespace headroom::model

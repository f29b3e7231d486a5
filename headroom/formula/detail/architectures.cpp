#include "headroom/formula/detail/architectures.h"

#include <algorithm>
#include <array>

#include "headroom/base/error.h"

namespace headroom::formula::detail {
namespace {

struct Family {
  std::string_view type;
  Value (*describe)(Network&);
  std::vector<Task> tasks;
};

const std::vector<Family>& families() {
  static const std::vector<Task> decodes{Task::causal_lm, Task::sequence_classification};
  static const std::vector<Task> encodes{Task::masked_lm, Task::sequence_classification};
  static const std::vector<Task> both{Task::masked_lm, Task::sequence_classification,
                                      Task::causal_lm};
  static const std::vector<Task> sees{Task::image_classification};
  static const std::vector<Family> all{{"bert", bert, both},
                                       {"convnext", convnext, sees},
                                       {"deit", vit, sees},
                                       {"distilbert", distilbert, encodes},
                                       {"gemma", llama_like, decodes},
                                       {"gemma2", llama_like, decodes},
                                       {"gpt2", gpt2, decodes},
                                       {"gpt_neo", gpt_neo, decodes},
                                       {"gpt_neox", gpt_neox, decodes},
                                       {"llama", llama_like, decodes},
                                       {"mistral", llama_like, decodes},
                                       {"mixtral", llama_like, decodes},
                                       {"opt", opt, decodes},
                                       {"phi", phi, decodes},
                                       {"phi3", llama_like, decodes},
                                       {"qwen2", llama_like, decodes},
                                       {"qwen3", llama_like, decodes},
                                       {"resnet", resnet, sees},
                                       {"roberta", bert, both},
                                       {"t5", t5, {Task::seq2seq_lm}},
                                       {"vit", vit, sees}};
  return all;
}

const Family& family_of(const ModelConfig& config) {
  for (const Family& family : families())
    if (family.type == config.type()) return family;
  throw InternalError("family_of", "no description of " + config.type());
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

Value described(Network& net) {
  return family_of(net.config).describe(net);
}

std::vector<Task> tasks_of(const ModelConfig& config) {
  std::vector<Task> tasks = family_of(config).tasks;
  for (const std::string& architecture : config.architectures())
    for (const Ending& ending : kEndings) {
      const auto usual = std::find(tasks.begin(), tasks.end(), ending.task);
      if (!architecture.ends_with(ending.architecture) || usual == tasks.end()) continue;
      std::rotate(tasks.begin(), usual, usual + 1);
      return tasks;
    }
  return tasks;
}

}  // namespace headroom::formula::detail

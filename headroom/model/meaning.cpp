#include "headroom/model/meaning.h"

#include <algorithm>
#include <array>

#include "headroom/base/error.h"
#include "headroom/model/tasks.h"

namespace headroom::model {
namespace {

struct Run {
  const ModelConfig& config;
  const Settings& settings;
  Task task;
};

bool takes_images(const Run& run) {
  return run.task == Task::image_classification;
}
bool takes_tokens(const Run& run) {
  return !takes_images(run);
}
bool is_token_loss(const Run& run) {
  return takes_tokens(run) && run.task != Task::sequence_classification;
}
bool has_decoder_beside_encoder(const Run& run) {
  return run.task == Task::seq2seq_lm;
}
bool has_attention(const Run& run) {
  return run.config.type() != "resnet" && run.config.type() != "convnext";
}
bool trains(const Run& run) {
  return run.settings.mode == Mode::train;
}
bool checkpoints(const Run& run) {
  return run.settings.checkpoint_every > 0;
}
bool has_several_gpus(const Run& run) {
  return run.settings.world > 1 || run.settings.zero == 0;
}
bool offloads(const Run& run) {
  return run.settings.offload.any();
}
bool has_half_weights(const Run& run) {
  return run.settings.dtype != Dtype::float32;
}
bool has_adapters(const Run& run) {
  return run.settings.lora_rank > 0;
}
bool has_optimizer(const Run& run) {
  return run.settings.optimizer != Optimizer::none;
}

struct Condition {
  bool (*holds)(const Run&);
  const char* otherwise;  // follows "means nothing for MODEL"
};
constexpr Condition kImages{takes_images, ", which takes tokens"};
constexpr Condition kTokens{takes_tokens, ", which takes images"};
constexpr Condition kTokenLoss{is_token_loss, " here, whose loss is not over tokens"};
constexpr Condition kDecoder{has_decoder_beside_encoder,
                             ", which has no decoder beside an encoder"};
constexpr Condition kAttention{has_attention, ", which has no attention"};
constexpr Condition kTrains{trains, " where nothing is trained"};
constexpr Condition kCheckpoints{checkpoints, " without --checkpointing"};
constexpr Condition kSeveral{has_several_gpus, " without --world, which says over how many GPUs"};
constexpr Condition kOffloads{offloads, " without --offload"};
constexpr Condition kHalf{has_half_weights, " with weights in float32"};
constexpr Condition kAdapters{has_adapters, " without --lora-rank"};
constexpr Condition kOptimizer{has_optimizer, " without an optimizer"};

struct Rule {
  const char* option;
  Condition condition;
};
constexpr auto kRules = std::to_array<Rule>({{"--image", kImages},
                                             {"--seq", kTokens},
                                             {"--mask", kTokens},
                                             {"--use-cache", kTokens},
                                             {"--loss", kTokenLoss},
                                             {"--target-seq", kDecoder},
                                             {"--attention", kAttention},
                                             {"--lora-rank", kAttention},
                                             {"--lora-dtype", kAdapters},
                                             {"--optimizer", kTrains},
                                             {"--optimizer-impl", kTrains},
                                             {"--optimizer-impl", kOptimizer},
                                             {"--optimizer-in-backward", kTrains},
                                             {"--optimizer-in-backward", kOptimizer},
                                             {"--rounding", kTrains},
                                             {"--rounding", kHalf},
                                             {"--accumulation", kTrains},
                                             {"--clip", kTrains},
                                             {"--zero-grad", kTrains},
                                             {"--loss", kTrains},
                                             {"--checkpointing", kTrains},
                                             {"--checkpointing-kind", kTrains},
                                             {"--checkpointing-kind", kCheckpoints},
                                             {"--hold-outputs", kTrains},
                                             {"--freeze-backbone", kTrains},
                                             {"--zero", kSeveral},
                                             {"--offload-to", kOffloads}});

}  // namespace

void check_meaning(const ModelConfig& config, const Settings& settings,
                   const std::vector<std::string>& given) {
  const Run run{config, settings, settings.task.value_or(tasks_of(config).front())};
  for (const Rule& rule : kRules) {
    if (std::find(given.begin(), given.end(), rule.option) == given.end()) continue;
    if (!rule.condition.holds(run))
      throw UsageError("settings", std::string(rule.option) + " means nothing for " +
                                       config.source() + rule.condition.otherwise +
                                       "; leave it out");
  }
}

}  // namespace headroom::model

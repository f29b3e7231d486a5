// Small adapters are trained beside frozen weights.
#include "headroom/plan/technique.h"

namespace headroom::plan {

using model::Settings;

static std::vector<Change> adapters(const Situation& now) {
  const Settings& settings = now.settings;
  const bool has_targets = now.config.type() != "resnet" && now.config.type() != "convnext";
  const bool can = has_targets && settings.lora_rank == 0 && !settings.freeze_backbone;
  if (!now.trains() || !can) return {};
  return {other_training(now, "LoRA", "--lora-rank " + std::to_string(kUsualRank),
                         [](Settings& s) { s.lora_rank = kUsualRank; })};
}

Technique lora() {
  return {
      .options = {{"lora_rank", Option::Kind::count, "Train only LoRA adapters of this rank"},
                  {"lora_targets", Option::Kind::list, "Layers that get an adapter (default q,v)"},
                  {"lora_dtype", Option::Kind::word, "Data type of the adapters",
                   model::choices<model::LoraDtype>},
                  {"freeze_backbone", Option::Kind::flag, "Train only the head"}},
      .changes = adapters};
}

}  // namespace headroom::plan

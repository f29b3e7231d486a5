// Small adapters are trained beside frozen weights, which may be stored in fewer bits.
#include "headroom/plan/technique.h"

namespace headroom::plan {

using model::Quantize;
using model::Settings;

constexpr std::int64_t kUsualRank = 8;

static std::vector<Change> adapters(const Situation& now) {
  const Settings& settings = now.settings;
  const bool has_lora = settings.lora_rank > 0;
  const bool has_targets = now.config.type() != "resnet" && now.config.type() != "convnext";
  const bool can = has_targets && (has_lora || !settings.freeze_backbone);
  if (!now.trains() || !can) return {};
  const auto put = [](Settings& s, Quantize quantize) {
    s.quantize = quantize;
    if (s.lora_rank == 0) s.lora_rank = kUsualRank;
  };
  const std::string rank = has_lora ? "" : " --lora-rank " + std::to_string(kUsualRank);
  std::vector<Change> all;
  if (!has_lora)
    all.push_back(other_training(now, "LoRA", rank.substr(1),
                                 [&](Settings& s) { put(s, settings.quantize); }));
  if (settings.quantize == Quantize::none)
    all.push_back(other_training(now, "LoRA over 8-bit weights", "--quantize 8bit" + rank,
                                 [&](Settings& s) { put(s, Quantize::int8); }));
  if (settings.quantize != Quantize::int4)
    all.push_back(other_training(now, "LoRA over 4-bit weights", "--quantize 4bit" + rank,
                                 [&](Settings& s) { put(s, Quantize::int4); }));
  return all;
}

Technique lora() {
  return {
      .options = {{"lora_rank", Option::Kind::count, "Train only LoRA adapters of this rank"},
                  {"lora_targets", Option::Kind::list, "Layers that get an adapter (default q,v)"},
                  {"freeze_backbone", Option::Kind::flag, "Train only the head"},
                  {"quantize", Option::Kind::word, "Store frozen weights in fewer bits",
                   model::choices<Quantize>}},
      .changes = adapters};
}

}  // namespace headroom::plan

// Frozen weights of linear layers are stored in 8 or 4 bit (nn/quantise.h).
#include "headroom/plan/technique.h"

namespace headroom::plan {

using model::Quantize;
using model::Settings;

// Trained weights stay in full: adapters are trained beside them, or the head alone.
static std::vector<Change> fewer_bits_of_weights(const Situation& now) {
  const Settings& settings = now.settings;
  const bool has_layers = now.config.type() != "resnet" && now.config.type() != "convnext";
  if (!now.trains() || !has_layers) return {};
  const bool is_frozen = settings.lora_rank > 0 || settings.freeze_backbone;
  const std::string rank = is_frozen ? "" : " --lora-rank " + std::to_string(kUsualRank);
  const auto change_to = [&](const char* bits, Quantize quantize) {
    const std::string option = "--quantize " + std::string(to_string(quantize)) + rank;
    const std::string over = settings.freeze_backbone ? "" : "LoRA over ";
    return other_training(now, over + bits + " weights", option, [&](Settings& s) {
      s.quantize = quantize;
      if (!is_frozen) s.lora_rank = kUsualRank;
    });
  };
  std::vector<Change> all;
  if (settings.quantize == Quantize::none) all.push_back(change_to("8-bit", Quantize::int8));
  if (settings.quantize != Quantize::int4) all.push_back(change_to("4-bit", Quantize::int4));
  return all;
}

static Rung rung(const char* name, int place, const char* words, const char* key,
                 Quantize quantize) {
  return {.name = name,
          .place = place,
          .words = words,
          .key = key,
          .lasts = true,
          .put = [quantize](Settings& s, bool on) { s.quantize = on ? quantize : Quantize::none; }};
}

Technique quantize() {
  return {.options = {{"quantize", Option::Kind::word, "Store frozen weights in fewer bits",
                       model::choices<Quantize>}},
          .keys = {{"quantize",
                    {"none", "8bit", "4bit", "auto"},
                    "Frozen weights of linear layers in 8 or 4 bit. auto: in full; in 8, then 4 "
                    "bit only when no other plan fits.",
                    [](std::string_view value, Settings& s) {
                      if (value != "auto") s.quantize = model::choice<Quantize>(value);
                    }}},
          .rungs = {rung("quantize_8bit", 4, "frozen weights in 8 bit", "quantize=8bit",
                         Quantize::int8),
                    rung("quantize_4bit", 5, "frozen weights in 4 bit", "quantize=4bit",
                         Quantize::int4)},
          .changes = fewer_bits_of_weights};
}

}  // namespace headroom::plan

// Forms of attention, and of the tensors kept around it, that need less.
#include "headroom/model/can_run.h"
#include "headroom/plan/technique.h"

namespace headroom::plan {

using model::Attention;
using model::Settings;

static std::vector<Change> lighter_forms(const Situation& now) {
  const bool has_attention = now.config.type() != "resnet" && now.config.type() != "convnext";
  const bool has_sdpa = has_attention && model::attention_of(now.config, now.settings.transformers,
                                                             Attention::sdpa) == Attention::sdpa;
  std::vector<Change> all;
  if (has_sdpa && now.settings.attention == Attention::eager)
    all.push_back(change(now, "attention in one kernel", "--attention sdpa",
                         [](Settings& s) { s.attention = Attention::sdpa; }));
  if (now.settings.use_cache && now.trains())
    all.push_back(change(now, "no cache of keys and values", "no --use-cache",
                         [](Settings& s) { s.use_cache = false; }));
  if (now.settings.hold_outputs)
    all.push_back(change(now, "outputs let go before the backward pass", "no --hold-outputs",
                         [](Settings& s) { s.hold_outputs = false; }));
  return all;
}

Technique kernels() {
  return {.options = {{"attention", Option::Kind::word, "Implementation of attention",
                       model::choices<Attention>},
                      {"use_cache", Option::Kind::flag,
                       "Keep the keys and values, as transformers does by default"},
                      {"hold_outputs", Option::Kind::flag,
                       "Keep the outputs through the backward pass"}},
          .changes = lighter_forms};
}

}  // namespace headroom::plan

// Activations are computed a second time instead of being kept.
#include "headroom/base/text.h"
#include "headroom/plan/technique.h"

namespace headroom::plan {

using model::Settings;

static std::vector<Change> more_checkpointing(const Situation& now) {
  std::vector<Change> all;
  if (now.trains() && now.settings.checkpoint_every != 1)
    all.push_back(change(now, "checkpointing, every layer", "--checkpointing full",
                         [](Settings& s) { s.checkpoint_every = 1; }));
  if (now.trains() && now.settings.checkpoint_every == 0)
    all.push_back(change(now, "checkpointing, every second layer", "--checkpointing every:2",
                         [](Settings& s) { s.checkpoint_every = 2; }));
  return all;
}

Technique checkpointing() {
  return {.options = {{"checkpointing", Option::Kind::word,
                       "Activation checkpointing: none (default), full, every:K (layers)"},
                      {"checkpointing_kind", Option::Kind::word,
                       "PyTorch's implementation of checkpointing",
                       model::choices<model::CheckpointingKind>}},
          .keys = {{"gradient_checkpointing",
                    {"false", "true", "every:N"},
                    "Compute activations a second time instead of keeping them, of each layer or "
                    "every N-th.",
                    [](std::string_view value, Settings& s) {
                      s.checkpoint_every = number_after_colon(value).value_or(1);
                    }}},
          .rungs = {{.name = "checkpointing",
                     .place = 1,
                     .words = "checkpointing",
                     .key = "gradient_checkpointing=true",
                     .put =
                         [](Settings& s, bool on) {
                           if (!on || s.checkpoint_every == 0) s.checkpoint_every = on ? 1 : 0;
                         }}},
          .changes = more_checkpointing};
}

}  // namespace headroom::plan

// A loss over a large vocabulary, without all of its logits at once.
#include "headroom/base/text.h"
#include "headroom/model/tasks.h"
#include "headroom/plan/technique.h"

namespace headroom::plan {

using model::Settings;

static std::vector<Change> smaller_losses(const Situation& now) {
  const bool can = now.trains() && model::is_over_tokens(now.settings.task.value()) &&
                   now.settings.loss == model::LossForm::full;
  if (!can) return {};
  return {change(now, "the loss in chunks of 1024 tokens", "--loss chunked:1024",
                 [](Settings& s) { s.loss = model::LossForm::chunked, s.loss_chunk = 1024; }),
          change(now, "head and loss in one, without logits", "--loss fused",
                 [](Settings& s) { s.loss = model::LossForm::fused; })};
}

static void take_loss(std::string_view value, Settings& settings) {
  const auto chunk = number_after_colon(value);
  settings.loss = chunk ? model::LossForm::chunked : model::LossForm::fused;
  if (chunk) settings.loss_chunk = *chunk;
}

Technique loss() {
  return {
      .options = {{"loss", Option::Kind::word,
                   "How to compute the loss: full (default), fused, chunked:N (N tokens at a "
                   "time)"}},
      .keys = {{"loss",
                {"full", "fused", "chunked:N"},
                "How the loss is computed: with all logits in memory, without, or of N tokens at "
                "a time.",
                take_loss}},
      .rungs = {{.name = "fused_loss",
                 .place = 2,
                 .words = "fused loss",
                 .key = "loss=fused",
                 .put =
                     [](Settings& s, bool on) {
                       s.loss = on ? model::LossForm::fused : model::LossForm::full;
                     }}},
      .changes = smaller_losses};
}

}  // namespace headroom::plan

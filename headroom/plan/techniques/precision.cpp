// Numbers of 16 bits: in the computation alone, or everywhere.
#include "headroom/plan/technique.h"

namespace headroom::plan {

using model::Autocast;
using model::Settings;

static std::vector<Change> fewer_bits(const Situation& now) {
  if (now.settings.dtype != model::Dtype::float32) return {};
  const bool is_mixed = now.settings.autocast != Autocast::none;
  // A chip without bf16 units computes bf16 as slowly as float32.
  const bool has_bf16 = now.card == nullptr || now.card->rates.bf16.has_value();
  std::vector<Change> all;
  if (!is_mixed && has_bf16)
    all.push_back(change(now, "computing in bf16", "--autocast bf16",
                         [](Settings& s) { s.autocast = Autocast::bf16; }));
  if (!is_mixed && !has_bf16)
    all.push_back(change(now, "computing in fp16", "--autocast fp16",
                         [](Settings& s) { s.autocast = Autocast::fp16; }));
  all.push_back(
      change(now, "everything in bf16",
             std::string("--dtype bfloat16") + (is_mixed ? " --autocast none" : ""),
             [](Settings& s) { s.dtype = model::Dtype::bfloat16, s.autocast = Autocast::none; }));
  all.back().changes_training = now.trains();
  return all;
}

Technique precision() {
  return {
      .options = {{"dtype", Option::Kind::word, "Data type of weights, gradients and activations",
                   model::choices<model::Dtype>},
                  {"autocast", Option::Kind::word, "Mixed precision (fp16 with loss scaling)",
                   model::choices<Autocast>},
                  {"rounding", Option::Kind::word,
                   "Rounding of updates to weights of lower precision",
                   model::choices<model::Rounding>}},
      .keys = {{"fp16",
                {},
                "Mixed precision with float16 and loss scaling.",
                [](std::string_view, Settings& s) { s.autocast = Autocast::fp16; }},
               {"bf16",
                {},
                "Mixed precision with bfloat16.",
                [](std::string_view, Settings& s) { s.autocast = Autocast::bf16; }}},
      .changes = fewer_bits};
}

}  // namespace headroom::plan

// Techniques that keep data in the host's memory while it is not needed.
#include "headroom/plan/technique.h"

namespace headroom::plan {

using model::Offload;
using model::Settings;

// "--offload optimizer,activations": the parts chosen already, and one more.
static std::string option_with(const Offload& now, bool Offload::*part) {
  Offload with = now;
  with.*part = true;
  std::string list;
  const auto name = [&](bool is_there, const char* word) {
    if (is_there) list += (list.empty() ? "" : ",") + std::string(word);
  };
  name(with.optimizer, "optimizer");
  name(with.gradients, "gradients");
  name(with.parameters, "parameters");
  name(with.activations, "activations");
  return "--offload " + list;
}

static std::vector<Change> more_on_the_host(const Situation& now) {
  std::vector<Change> all;
  const auto add = [&](bool possible, const char* title, bool Offload::*part) {
    if (possible && !(now.settings.offload.*part))
      all.push_back(change(now, title, option_with(now.settings.offload, part),
                           [&](Settings& s) { s.offload.*part = true; }));
  };
  add(now.trains(), "the optimizer on the host", &Offload::optimizer);
  add(true, "parameters on the host", &Offload::parameters);
  add(now.trains(), "activations on the host", &Offload::activations);
  return all;
}

Technique offload() {
  return {.options = {{"offload", Option::Kind::list,
                       "Offload some of: optimizer,gradients,parameters,activations"},
                      {"offload_to", Option::Kind::word, "Where offloaded tensors go",
                       model::choices<model::OffloadTo>}},
          .keys = {{"offload",
                    {"none", "activations"},
                    "Data kept in host memory during a step.",
                    [](std::string_view, Settings& s) { s.offload.activations = true; }}},
          .rungs = {{.name = "offload",
                     .place = 3,
                     .words = "activations on the host",
                     .key = "offload=activations",
                     .uses_host = true,
                     .put = [](Settings& s, bool on) { s.offload.activations = on; }}},
          .changes = more_on_the_host};
}

}  // namespace headroom::plan

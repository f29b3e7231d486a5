// ZeRO: tensors that each GPU of a data-parallel training would hold are spread over all of them.
#include "headroom/plan/technique.h"

namespace headroom::plan {

static std::vector<Change> higher_stages(const Situation& now) {
  static constexpr const char* kTitles[] = {"", "ZeRO 1: states over all GPUs",
                                            "ZeRO 2: gradients, too", "ZeRO 3: parameters, too"};
  std::vector<Change> all;
  if (!now.trains() || now.gpus < 2) return all;
  for (int stage = now.settings.zero + 1; stage <= 3; ++stage)
    all.push_back(change(now, kTitles[stage],
                         "--world " + std::to_string(now.gpus) + " --zero " + std::to_string(stage),
                         [&](model::Settings& s) { s.world = now.gpus, s.zero = stage; }));
  return all;
}

Technique zero() {
  return {.options = {{"world", Option::Kind::count, "Number of GPUs that train together"},
                      {"zero", Option::Kind::count, "ZeRO stage, 0 to 3"}},
          .changes = higher_stages};
}

}  // namespace headroom::plan

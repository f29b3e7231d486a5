// The settings of a run that goes on: its changes from before, and the config.yaml that it writes.
#pragma once

#include <string>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/base/run_folder.h"
#include "headroom/cli/engine/train/training_view.h"
#include "headroom/config/resolved.h"
#include "headroom/train/checkpoint.h"

namespace headroom::cli {

class RunSettings {
 public:
  // From the request of `headroom train`.
  RunSettings(const Json& request, const config::Resolved& config);

  // Says how a run with --resume begins; says nothing without a checkpoint.
  void tell(const train::FoundCheckpoint* found, TrainingView& view);
  // Writes config.yaml, once. Not before a step was committed: until then an earlier run's may lie
  // there. Throws WriteError.
  void save(RunFolder& folder);

 private:
  const Json& request_;
  const config::Resolved& config_;
  std::vector<std::string> changes_;
  bool is_saved_ = false;
};

}  // namespace headroom::cli

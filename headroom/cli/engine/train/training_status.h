// The status that a running `headroom train` publishes for `headroom top` and the metrics, from
// what its trainer reports (watch/job_status.h).
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "headroom/config/training.h"
#include "headroom/train/trainer.h"
#include "headroom/watch/job_status.h"

namespace headroom::cli {

class TrainingStatus {
 public:
  // `uuids`: of the cards that the run sees, in their order.
  TrainingStatus(const config::Training& training, std::vector<std::string> uuids);

  // Publishes that the run begins.
  void begin(const std::vector<c10::Device>& devices);
  // The devices that the next show() reports.
  void on_devices(const std::vector<c10::Device>& devices);
  void show(const train::Progress& progress, std::int64_t batch);
  void hear(const train::Event& event);
  // Counts the out-of-memory errors so far as survived, and publishes. After an evaluation, too: it
  // is not a step, and survives out-of-memory errors of its own.
  void publish_survived();

 private:
  std::vector<std::string> uuids_;
  watch::JobStatus status_;
  std::uint64_t open_ooms_ = 0;  // not known yet to be survived
  watch::JobStatusPublisher publisher_;
};

}  // namespace headroom::cli

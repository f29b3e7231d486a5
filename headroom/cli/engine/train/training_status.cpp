#include "headroom/cli/engine/train/training_status.h"

#include <utility>

namespace headroom::cli {
TrainingStatus::TrainingStatus(const config::Training& training, std::vector<std::string> uuids)
    : uuids_(std::move(uuids)) {
  status_.what = "train " + training.short_name();
}

void TrainingStatus::begin(const std::vector<c10::Device>& devices) {
  on_devices(devices);
  publisher_.publish(status_);
}

void TrainingStatus::on_devices(const std::vector<c10::Device>& devices) {
  status_.gpus.clear();
  for (const c10::Device device : devices) {
    const auto i = static_cast<std::size_t>(device.index());
    if (!device.is_cpu() && i < uuids_.size()) status_.gpus.push_back(uuids_[i]);
  }
}

void TrainingStatus::show(const train::Progress& progress, std::int64_t batch) {
  status_.step = progress.step;
  status_.steps = progress.steps;
  status_.loss = progress.loss;
  status_.batch = batch;
  status_.micro_batch = progress.committed.micro_batch;
  status_.plan = to_string(progress.committed.plan);
  status_.rows_per_s = progress.rows_per_s;
  publish_survived();
}

void TrainingStatus::hear(const train::Event& event) {
  if (event.kind == train::Event::Kind::oom) ++open_ooms_;
  open_ooms_ += event.requests;
}

void TrainingStatus::publish_survived() {
  status_.ooms_survived += std::exchange(open_ooms_, 0);
  publisher_.publish(status_);
}

}  // namespace headroom::cli

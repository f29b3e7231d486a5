#include "headroom/cli/engine/train/training_machine.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/host_memory.h"
#include "headroom/cuda/load.h"
#include "headroom/gpu/devices.h"
#include "headroom/gpu/sampler.h"

namespace headroom::cli {

TrainingMachine::TrainingMachine(const Json& request) : share(request), request_(request) {
  if (request.at("card").is_null()) return;
  const int card = request.at("card").get<int>();
  const gpu::Devices devices = gpu::parse_devices(request.at("gpus").get<std::string>());
  if (devices.kind == gpu::Devices::Kind::simulated) {
    const bool dry = request.at("dry_run").get<bool>();
    box_.emplace(
        sim::simulate(devices.box, {.mode = dry ? sim::Mode::shape_only : sim::Mode::compute}));
    own = box_->device(card);
  } else {
    if (load_cuda().device_count() == 0)
      throw UnavailableError("expected a card that CUDA can use, received none: " +
                             std::string(load_cuda().why_absent()));
    own = c10::Device(c10::DeviceType::CUDA, 0);  // the first of CUDA_VISIBLE_DEVICES
  }
  share.begin_on(own);
}

std::vector<train::Elsewhere> TrainingMachine::others(const config::Resolved& config) {
  std::vector<train::Elsewhere> all;
  const bool may_move =
      config.yes("auto_device") && config.text("device") == "auto" && !own.is_cpu();
  for (int i = 0; box_ && may_move && i < box_->cards(); ++i)
    if (box_->device(i) != own) all.push_back({box_->device(i).str(), box_->card(i).free_bytes()});
  for (int i = 1; own.is_cuda() && may_move && i < cuda_functions().device_count(); ++i)
    all.push_back({c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(i)).str(), {}});
  for (train::Elsewhere& one : all)
    if (const auto most = share.most(c10::Device(one.device)))
      one.free = std::min(*most, one.free.value_or(*most));
  std::erase_if(all, [](const auto& one) { return one.free && *one.free <= Bytes{}; });
  if (config.yes("allow_cpu") && !own.is_cpu()) all.push_back({"cpu", host_memory_to_use()});
  return all;
}

std::vector<gpu::HolderReport> TrainingMachine::holders() const {
  try {
    const gpu::Devices devices = gpu::parse_devices(request_.at("gpus").get<std::string>());
    const bool is_private =
        devices.kind == gpu::Devices::Kind::simulated && devices.box.name.empty();
    if (is_private || devices.kind == gpu::Devices::Kind::cpu) return {};
    gpu::Sampler sampler(gpu::make_source(devices), {.keep_sampling = false});
    std::vector<gpu::HolderReport> all =
        gpu::explain_holders(sampler.fresh(), ProcessTable(), /*search_harder=*/false);
    const int card = request_.at("card").get<int>();
    std::erase_if(all, [&](const auto& one) { return one.card_index != card; });
    return all;
  } catch (const std::exception&) {  // the report is more important than who is in it
    return {};
  }
}

}  // namespace headroom::cli

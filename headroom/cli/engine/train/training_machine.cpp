#include "headroom/cli/engine/train/training_machine.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/host_memory.h"
#include "headroom/base/text.h"
#include "headroom/cuda/load.h"
#include "headroom/forecast/step_time.h"
#include "headroom/gpu/devices.h"
#include "headroom/gpu/sampler.h"

namespace headroom::cli {

TrainingMachine::TrainingMachine(const Json& request) : share(request), request_(request) {
  const auto cards = request.at("cards").get<std::vector<int>>();
  if (cards.empty()) {
    own.emplace_back(c10::DeviceType::CPU);
    return;
  }
  const gpu::Devices devices = gpu::parse_devices(request.at("gpus").get<std::string>());
  if (devices.kind == gpu::Devices::Kind::simulated) {
    const bool dry = request.at("dry_run").get<bool>();
    box_.emplace(
        sim::simulate(devices.box, {.mode = dry ? sim::Mode::shape_only : sim::Mode::compute}));
    for (const int card : cards) own.push_back(box_->device(card));
  } else {
    const auto count = static_cast<int>(cards.size());
    if (const int there = load_cuda().device_count(); there < count)
      throw UnavailableError(
          "expected " + counted(count, "card") + " that CUDA can use, received " +
          (there > 0 ? std::to_string(there) : "none: " + std::string(load_cuda().why_absent())));
    for (int i = 0; i < count; ++i)  // the first of CUDA_VISIBLE_DEVICES
      own.emplace_back(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(i));
  }
  for (const c10::Device device : own) share.begin_on(device);
}

std::vector<const gpu::CatalogueCard*> TrainingMachine::rates() const {
  std::vector<const gpu::CatalogueCard*> cards;
  for (const c10::Device device : own) {
    if (!box_) return {&forecast::card_or_a100(nullptr)};
    const sim::CardOptions& card = box_->card(device.index()).options();
    cards.push_back(&gpu::rates_for(card.name, card.capacity));
  }
  return cards;
}

std::vector<train::Elsewhere> TrainingMachine::others(const config::Resolved& config) {
  std::vector<train::Elsewhere> all;
  if (own.size() > 1) return all;
  const c10::Device now = own.front();
  const bool may_move =
      config.yes("auto_device") && config.text("device") == "auto" && !now.is_cpu();
  for (int i = 0; box_ && may_move && i < box_->cards(); ++i)
    if (box_->device(i) != now) all.push_back({box_->device(i).str(), box_->card(i).free_bytes()});
  for (int i = 1; now.is_cuda() && may_move && i < cuda_functions().device_count(); ++i)
    all.push_back({c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(i)).str(), {}});
  for (train::Elsewhere& one : all)
    if (const auto most = share.most(c10::Device(one.device)))
      one.free = std::min(*most, one.free.value_or(*most));
  std::erase_if(all, [](const auto& one) { return one.free && *one.free <= Bytes{}; });
  if (config.yes("allow_cpu") && !now.is_cpu()) all.push_back({"cpu", host_memory_to_use()});
  return all;
}

std::vector<gpu::HolderReport> TrainingMachine::holders(c10::Device device) const {
  try {
    const gpu::Devices devices = gpu::parse_devices(request_.at("gpus").get<std::string>());
    const bool is_private =
        devices.kind == gpu::Devices::Kind::simulated && devices.box.name.empty();
    if (is_private || devices.kind == gpu::Devices::Kind::cpu) return {};
    gpu::Sampler sampler(gpu::make_source(devices), {.keep_sampling = false});
    std::vector<gpu::HolderReport> all =
        gpu::explain_holders(sampler.fresh(), ProcessTable(), /*search_harder=*/false);
    const auto uuids = request_.at("uuids").get<std::vector<std::string>>();
    const std::string own_uuid = uuids.at(static_cast<std::size_t>(device.index()));
    std::erase_if(all, [&](const auto& one) { return to_string(one.card) != own_uuid; });
    return all;
  } catch (const std::exception&) {  // the report is more important than who is in it
    return {};
  }
}

}  // namespace headroom::cli

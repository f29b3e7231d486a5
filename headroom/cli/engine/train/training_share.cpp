#include "headroom/cli/engine/train/training_share.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/memory/device_memory.h"
#include "headroom/memory/memory_statistics.h"

namespace headroom::cli {
namespace {

using namespace headroom::literals;

// A look reads the folder of leases and the driver's lists: not in each of a thousand steps.
constexpr Seconds kLookEvery{1.0};
constexpr int kStepsUntilSmaller = 20;

// The allocator takes at least this much from the card for a request that its segments cannot
// serve.
Bytes segment_for(Bytes asked) {
  constexpr std::int64_t kPage = std::int64_t{2} << 20;
  return std::max(20_MiB, Bytes{(asked.count + kPage - 1) / kPage * kPage});
}

// Prices are exact on a simulated card. On a real one peaks differ from them by some tenths of a
// percent, and a refusal costs more than this.
Bytes slack_of(c10::Device device, Bytes needed) {
  return device.is_cuda() ? 64_MiB + Bytes{needed.count / 50} : Bytes{};
}

Bytes reserved_on(c10::Device device) {
  return memory::get_gpu_memory_stats(device).reserved;
}

std::optional<int> whole(const Json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<int>());
}

}  // namespace

TrainingShare::TrainingShare(const Json& request) {
  for (const Json& usable : request.at("usable_bytes"))
    assumed_.push_back(Bytes{usable.get<std::int64_t>()});
  if (request.at("cards").empty() || request.at("dry_run").get<bool>()) return;
  const gpu::Devices devices = gpu::parse_devices(request.at("gpus").get<std::string>());
  const bool is_private = devices.kind == gpu::Devices::Kind::simulated && devices.box.name.empty();
  if (is_private) return;
  for (const Json& uuid : request.at("uuids"))
    cards_.push_back(gpu::Uuid::from_driver(uuid.get<std::string>()));
  allowance_ = supervise::Allowance::find(devices, whole(request.at("lease")));
}

void TrainingShare::guide(train::StepOptions& step, train::EvaluationOptions& evaluation,
                          std::function<std::vector<c10::Device>()> devices) {
  devices_ = std::move(devices);
  step.usable = [this](c10::Device on) { return most(on); };
  step.reserve = [this](c10::Device on, Bytes bytes) { return reserve(on, bytes); };
  step.on_event = [this](const train::Event& event) {
    if (event.kind != train::Event::Kind::oom)
      for (auto& [index, card] : known_) card.follows_at_once = true;
    hear(event, /*stays=*/false);
  };
  evaluation.on_event = [this](const train::Event& event) { hear(event, /*stays=*/true); };
}

void TrainingShare::hear(const train::Event& event, bool stays) {
  if (event.kind != train::Event::Kind::oom || !event.asked) return;
  grow(event.device.empty() ? devices_().front() : c10::Device(event.device), *event.asked, stays);
}

std::optional<Bytes> TrainingShare::assumed(c10::Device device) const {
  const auto index = static_cast<std::size_t>(device.index());
  if (device.is_cpu() || index >= assumed_.size()) return {};
  return assumed_[index];
}

// Null if the device has no limit.
TrainingShare::OnCard* TrainingShare::known(c10::Device device) {
  const auto index = static_cast<std::size_t>(device.index());
  if (!allowance_ || device.is_cpu() || index >= cards_.size()) return nullptr;
  const auto [found, is_new] = known_.try_emplace(device.index());
  if (is_new) {
    found->second.limit = memory::get_gpu_memory_stats(device).limit;
    look(device, found->second);
  }
  return &found->second;
}

// Where the leases cannot be read at the moment the last look counts.
void TrainingShare::look(c10::Device device, OnCard& card) {
  card.looked = Clock::now();
  const Bytes tensors = reserved_on(device);
  try {
    const auto now = allowance_->on(cards_[static_cast<std::size_t>(device.index())], tensors);
    card.beside = now.used - tensors;
    card.most = now.most - card.beside;
    card.granted = now.reserved - card.beside;
  } catch (const Error&) {
    return;
  }
  limit(device, card);
}

void TrainingShare::limit(c10::Device device, const OnCard& card) {
  const Bytes most = allowance_->is_fixed() ? card.most : card.granted;
  memory::set_memory_limit(device, std::min(most, card.limit.value_or(most)));
}

void TrainingShare::begin_on(c10::Device device) {
  if (OnCard* const card = known(device)) look(device, *card);
}

std::optional<Bytes> TrainingShare::most(c10::Device device) {
  if (!assumed_.empty()) return assumed(device);
  OnCard* const card = known(device);
  if (card == nullptr) return {};
  if (Clock::now() - card->looked >= kLookEvery) look(device, *card);
  return std::min(card->most, card->limit.value_or(card->most));
}

std::optional<Bytes> TrainingShare::most_when_alone(c10::Device device) {
  OnCard* const card = known(device);
  if (assumed_.empty() && card == nullptr) return {};
  const auto now = memory::get_gpu_memory_stats(device);
  if (!assumed_.empty()) return now.obtainable();  // a card of the dry run's own
  return allowance_->is_fixed() ? card->granted : now.total.value_or(Bytes{}) - card->beside;
}

// Memory that the cache holds beyond the new lease goes back first.
bool TrainingShare::change(c10::Device device, OnCard& card, Bytes bytes) {
  Bytes tensors = reserved_on(device);
  if (bytes < tensors) {
    memory::memory_of(device).empty_cache();
    tensors = reserved_on(device);
  }
  bytes = std::max(bytes, tensors);
  const auto& uuid = cards_[static_cast<std::size_t>(device.index())];
  const bool done = allowance_->reserve(uuid, bytes + card.beside, tensors);
  if (!done || allowance_->is_fixed())
    look(device, card);
  else
    card.granted = bytes;
  limit(device, card);
  return done;
}

bool TrainingShare::reserve(c10::Device device, Bytes needed) {
  if (const auto most = assumed(device)) return needed <= *most;
  OnCard* const card = known(device);
  if (card == nullptr) return true;
  if (allowance_->is_fixed()) return needed <= most(device);
  leave_others(device);
  const bool at_once = std::exchange(card->follows_at_once, false);
  const Bytes ample = std::max(needed + slack_of(device, needed), card->least);
  const Bytes wanted = std::max(needed, std::min(ample, card->most));
  if (wanted > card->granted) {
    card->lower = 0;
    return change(device, *card, wanted) || needed <= card->granted;
  }
  card->lately = card->lower == 0 ? wanted : std::max(card->lately, wanted);
  card->lower = wanted < card->granted ? card->lower + 1 : 0;
  if (card->lower == 0 || !(at_once || card->lower >= kStepsUntilSmaller)) return true;
  card->lower = 0;
  static_cast<void>(change(device, *card, at_once ? wanted : card->lately));
  return true;
}

void TrainingShare::grow(c10::Device device, Bytes asked, bool stays) {
  OnCard* const card = known(device);
  if (card == nullptr || allowance_->is_fixed()) return;
  look(device, *card);
  const Bytes wanted = std::min(card->granted + segment_for(asked), card->most);
  const bool is_large = wanted > card->granted && change(device, *card, wanted);
  if (is_large && stays) card->least = wanted;
}

// After a move to this device: the share of a card on which nothing is left.
void TrainingShare::leave_others(c10::Device device) {
  if (devices_ && devices_().size() > 1) return;
  for (auto one = known_.begin(); one != known_.end();) {
    const c10::Device other(device.type(), static_cast<c10::DeviceIndex>(one->first));
    const bool is_left = other != device && reserved_on(other) == Bytes{};
    if (is_left) allowance_->leave(cards_[static_cast<std::size_t>(one->first)]);
    one = is_left ? known_.erase(one) : std::next(one);
  }
}

std::optional<std::string> TrainingShare::news() {
  return allowance_ ? allowance_->news() : std::nullopt;
}

}  // namespace headroom::cli

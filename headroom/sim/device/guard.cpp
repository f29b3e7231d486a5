#include "headroom/sim/device/register_device.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <chrono>

#include "headroom/base/error.h"
#include "headroom/libtorch/operator_refusal.h"
#include "headroom/sim/device/block.h"
#include "headroom/sim/device/cards.h"
#include "headroom/sim/device/stream_order.h"
#include "headroom/sim/device/streams.h"

namespace headroom::sim::detail {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;
constexpr auto kSim = c10::DeviceType::PrivateUse1;

Device device_of(int card) {
  return {kSim, static_cast<DeviceIndex>(card)};
}
// Accepts any of kMostCards, simulated now or not: autograd names them all.
int index_of(Device device) {
  if (device.index() < 0) return current_card();
  if (device.index() >= kMostCards)
    throw libtorch::DeviceError(expectation(
        "sim", "one of at most " + std::to_string(kMostCards) + " cards", device.str(), ""));
  return device.index();
}
Stream stream_of(int card, c10::StreamId id) {
  return Stream(Stream::UNSAFE, device_of(card), id);
}

// Work is always done, so an event holds only the time of its record and, for a checker of streams,
// the work that it orders.
struct Event {
  std::chrono::steady_clock::time_point at;
  std::shared_ptr<StreamOrder> order;  // null without a checker
  StreamClock clock;
};

std::shared_ptr<StreamOrder> order_of(int card) {
  const Card* const found = find_card(card);
  return found == nullptr ? nullptr : found->options().stream_order;
}
StreamOfCard name_of(const Stream& stream) {
  return {index_of(stream.device()), stream.id()};
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kSim; }

  Device exchangeDevice(Device device) const override {
    return device_of(exchange_current_card(index_of(device)));
  }
  Device getDevice() const override { return device_of(current_card()); }
  void setDevice(Device device) const override { exchange_current_card(index_of(device)); }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.index() >= 0 && device.index() < kMostCards) exchange_current_card(device.index());
  }
  // Autograd makes its threads by this number, once, however many cards are simulated later.
  DeviceIndex deviceCount() const noexcept override { return kMostCards; }

  Stream getStream(Device device) const override {
    const int card = index_of(device);
    return stream_of(card, current_stream(card));
  }
  Stream getDefaultStream(Device device) const override { return stream_of(index_of(device), 0); }
  Stream getStreamFromGlobalPool(Device device, bool high_priority) const override {
    const int card = index_of(device);
    return stream_of(card, pooled_stream(card, high_priority));
  }
  Stream getNewStream(Device device, int) const override {
    const int card = index_of(device);
    return stream_of(card, new_stream(card));
  }
  Stream exchangeStream(Stream stream) const override {
    const int card = index_of(stream.device());
    return stream_of(card, exchange_current_stream(card, stream.id()));
  }
  // The answer shows the host that the work is done, as a wait does.
  bool queryStream(const Stream& stream) const override {
    synchronizeStream(stream);
    return true;
  }
  void synchronizeStream(const Stream& stream) const override {
    if (const auto order = order_of(index_of(stream.device()))) order->synchronize(name_of(stream));
  }
  void synchronizeDevice(DeviceIndex card) const override {
    if (const auto order = order_of(card)) order->synchronize_card(card);
  }

  void record(void** event, const Stream& stream, DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    auto* const made = static_cast<Event*>(*event);
    made->at = std::chrono::steady_clock::now();
    made->order = order_of(index_of(stream.device()));
    if (made->order != nullptr) made->clock = made->order->record(name_of(stream));
  }
  void block(void* event, const Stream& stream) const override {
    const auto* const before = static_cast<const Event*>(event);
    if (before != nullptr && before->order != nullptr)
      before->order->wait(name_of(stream), before->clock);
  }
  bool queryEvent(void* event) const override {
    synchronizeEvent(event);
    return true;
  }
  void synchronizeEvent(void* event) const override {
    const auto* const before = static_cast<const Event*>(event);
    if (before != nullptr && before->order != nullptr) before->order->synchronize(before->clock);
  }
  void destroyEvent(void* event, DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  double elapsedTime(void* from, void* to, DeviceIndex) const override {
    const auto passed = static_cast<Event*>(to)->at - static_cast<Event*>(from)->at;
    return std::chrono::duration<double, std::milli>(passed).count();
  }

  void recordDataPtrOnStream(const c10::DataPtr& pointer, const Stream& stream) const override {
    device_allocator()->recordStream(pointer, stream);
  }
};

}  // namespace

void register_guard() {
  static const Guard& guard = *new Guard;
  c10::impl::registerDeviceGuard(kSim, &guard);
}

}  // namespace headroom::sim::detail

#include "headroom/sim/device/register_device.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "headroom/base/error.h"
#include "headroom/libtorch/operator_refusal.h"
#include "headroom/sim/device/block.h"
#include "headroom/sim/device/cards.h"
#include "headroom/sim/device/generator.h"
#include "headroom/sim/device/pinned.h"
#include "headroom/sim/device/running_operator.h"
#include "headroom/sim/device/streams.h"

namespace headroom::sim::detail {
namespace {

int card_or_current(c10::DeviceIndex index) {
  return index < 0 ? current_card() : index;
}

// Returns this thread's previous card. Throws if the new one does not exist.
c10::DeviceIndex exchange(c10::DeviceIndex index) {
  return static_cast<c10::DeviceIndex>(exchange_current_card(card_at(index).index()));
}

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return card_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex index) const override {
    return find_card(index) != nullptr;
  }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(card_count());
  }

  void setCurrentDevice(c10::DeviceIndex index) const override { exchange(index); }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(current_card());
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override { return exchange(index); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchangeDevice(index);
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return card_at(card_or_current(index)).generator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return make_generator(card_or_current(index));
  }

  at::Device getDeviceFromPtr(void*) const override {
    throw libtorch::NotSimulatedError(expectation("from_blob",
                                                  "memory of the host, for a tensor on the CPU",
                                                  "an address for a tensor on a simulated card",
                                                  "from_blob(...) on the CPU, then to(device)"));
  }

  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    Card& card = card_at(storage.device().index());
    c10::DataPtr grown{nullptr, card.device()};
    if (bytes > 0) {
      Block* const before = block_of(storage);
      const bool known = mode_now(card) == Mode::shape_only && before != nullptr && before->known &&
                         storage.data() != nullptr &&
                         bytes <= static_cast<std::size_t>(kMostKnown) * sizeof(std::int64_t);
      grown = allocate_block(card, bytes, known || mode_now(card) == Mode::compute);
      auto* const after = static_cast<Block*>(grown.get_context());
      after->known = known;
      if (StreamOrder* const order = card.stream_order(); order != nullptr && before != nullptr)
        order->launch({card.index(), current_stream(card.index())}, "aten::resize_",
                      std::array{StreamOrder::Touch{&before->uses, false},
                                 StreamOrder::Touch{&after->uses, true}});
      if (grown.get() != nullptr && storage.data() != nullptr)
        std::memcpy(grown.get(), storage.data(), std::min(bytes, storage.nbytes()));
    }
    c10::StorageImpl* const impl = storage.unsafeGetStorageImpl();
    impl->set_data_ptr_noswap(std::move(grown));
    impl->set_nbytes(bytes);
  }
};

}  // namespace

void register_hooks() {
  static Hooks& hooks = *new Hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
}

}  // namespace headroom::sim::detail

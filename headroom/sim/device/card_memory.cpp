#include "headroom/sim/device/register_device.h"

#include <array>
#include <mutex>

#include "headroom/memory/device_memory.h"
#include "headroom/sim/device/block.h"
#include "headroom/sim/device/cards.h"

namespace headroom::sim::detail {
namespace {

class CardMemory final : public memory::AcceleratorMemory {
 public:
  CardMemory() : AcceleratorMemory(c10::DeviceType::PrivateUse1) {}

  int count() override { return card_count(); }

  // Each simulation has new cards under the same numbers.
  std::uint64_t life(int index) override {
    const std::weak_ptr<Card> card = card_at(index).weak_from_this();
    const std::lock_guard lock(mutex_);
    Seen& seen = seen_[static_cast<std::size_t>(index)];
    const bool same = !seen.card.owner_before(card) && !card.owner_before(seen.card);
    if (!same) seen = {.card = card, .life = ++lives_};
    return seen.life;
  }

  std::uint64_t address_of(const c10::Storage& storage) override {
    const Block* const block = block_of(storage);
    return block == nullptr ? 0 : block->card->block(block->id).address;
  }
  bool has_data(int index) override { return card_at(index).mode() == Mode::compute; }

  std::optional<memory::FreeAndTotal> free_and_total(int index) override {
    auto memory = AcceleratorMemory::free_and_total(index);
    memory->share = card_at(index).memory_fraction();
    return memory;
  }

  void set_share(int index, double share) override { card_at(index).set_memory_fraction(share); }

  void change_settings(std::string_view text) override {
    for (int i = 0; i < card_count(); ++i) card_at(i).change_settings(text);
  }

  std::vector<allocator::SegmentInfo> snapshot(int index) override {
    return card_at(index).snapshot();
  }
  void record(int index, trace::Recorder* recorder) override { card_at(index).record(recorder); }

 private:
  struct Seen {
    std::weak_ptr<Card> card;
    std::uint64_t life = 0;
  };
  std::mutex mutex_;
  std::array<Seen, kMostCards> seen_;
  std::uint64_t lives_ = 0;
};

}  // namespace

void register_card_memory() {
  static CardMemory& memory = *new CardMemory;
  memory::register_device_memory(c10::DeviceType::PrivateUse1, memory);
}

}  // namespace headroom::sim::detail

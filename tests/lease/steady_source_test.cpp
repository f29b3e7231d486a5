// Free and used that belong together, whatever happens while they are told.

#include "headroom/lease/steady_source.h"

#include <gtest/gtest.h>

#include "tests/gpu/fixtures/cards.h"

namespace headroom::lease {
namespace {

using namespace headroom::literals;

// At each call the next figure: free, used, free, used.
class Changing : public gpu::CardSource {
 public:
  explicit Changing(std::vector<Bytes> used) : used_(std::move(used)) {}
  gpu::Machine open() override { return gpu::fixtures::machine_of({gpu::fixtures::card(0)}); }
  void read_gauges(gpu::Card& card) override {
    card.memory = gpu::fixtures::card(0, next()).memory;
  }
  void read_processes(gpu::Card& card) override {
    const Bytes used = next();
    card.processes.emplace();
    if (used.count > 0) card.processes->push_back(gpu::fixtures::process(42, used));
  }
  void read_activity(gpu::Card&) override {}

 private:
  Bytes next() { return used_.at(call_++); }
  std::vector<Bytes> used_;
  std::size_t call_ = 0;
};

// The memory that the ledger would promise beside a lease of 8 GiB that process 42 holds.
Bytes promised(std::vector<Bytes> used) {
  const auto source = steady(std::make_shared<Changing>(std::move(used)));
  gpu::Card card = source->open().cards[0];
  source->read_gauges(card);
  source->read_processes(card);
  const Bytes own = card.processes->empty() ? 0_GiB : *card.processes->front().used;
  return card.memory->free - std::max(0_GiB, 8_GiB - own);
}

constexpr Bytes kNone = 0_GiB, kAll = 8_GiB;

TEST(SteadySource, PromisesTheRestWhenNothingChanges) {
  EXPECT_EQ(promised({kNone, kNone, kNone, kNone}), 16_GiB);
  EXPECT_EQ(promised({kAll, kAll, kAll, kAll}), 16_GiB);
}

// Free was told without it, used with it: 24 free and nothing outstanding would be 24.
TEST(SteadySource, MemoryTakenInBetweenIsNotPromisedTwice) {
  EXPECT_LE(promised({kNone, kAll, kAll, kAll}), 16_GiB);
  EXPECT_LE(promised({kNone, kNone, kAll, kAll}), 16_GiB);
  EXPECT_LE(promised({kNone, kNone, kNone, kAll}), 16_GiB);
}

TEST(SteadySource, MemoryGivenBackInBetweenIsNotPromisedTwice) {
  EXPECT_LE(promised({kAll, kNone, kNone, kNone}), 16_GiB);
  EXPECT_LE(promised({kAll, kAll, kNone, kNone}), 16_GiB);
  EXPECT_LE(promised({kAll, kAll, kAll, kNone}), 16_GiB);
}

TEST(SteadySource, MemoryTakenAndGivenBackInBetweenIsNotPromisedTwice) {
  EXPECT_LE(promised({kNone, kAll, kNone, kNone}), 16_GiB);
  EXPECT_LE(promised({kNone, kAll, kAll, kNone}), 16_GiB);
  EXPECT_LE(promised({kAll, kNone, kAll, kAll}), 16_GiB);
  EXPECT_LE(promised({kAll, kAll, kNone, kAll}), 16_GiB);
}

}  // namespace
}  // namespace headroom::lease

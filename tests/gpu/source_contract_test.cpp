// One contract for every source of cards: the real driver's (through the fake one, newest and old)
// and the simulated box.

#include "headroom/gpu/source.h"

#include <gtest/gtest.h>
#include <pwd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "headroom/base/json.h"
#include "headroom/gpu/nvml.h"
#include "headroom/gpu/simulated.h"
#include "tests/gpu/fixtures/cards.h"
#include "tests/gpu/fixtures/fake_driver.h"
#include "tests/gpu/fixtures/processes.h"
#include "tests/support/temporary_folder.h"

namespace headroom::gpu {
namespace {

using namespace fixtures;

struct Share {
  int card;
  ProcessIdentity process;
  Bytes used;
};

// A machine of two cards, 24 and 80 GiB, that a test can use, break and repair.
class Place {
 public:
  virtual ~Place() = default;
  virtual std::unique_ptr<CardSource> source() = 0;
  virtual void holds(const std::vector<Share>& shares) = 0;
  virtual void breaks() = 0;
};

class NvmlPlace : public Place {
 public:
  explicit NvmlPlace(FakeDriver::Version version) : driver_(state({}, "[]"), version) {}

  std::unique_ptr<CardSource> source() override { return make_nvml_source(proc_.table()); }
  void holds(const std::vector<Share>& shares) override {
    for (const Share& share : shares)
      if (!std::filesystem::is_symlink(proc_.root() / std::to_string(share.process.pid)))
        proc_.show(share.process.pid);
    driver_.becomes(state(shares, "[]"));
  }
  void breaks() override {
    driver_.becomes(state({}, R"([{"function": "nvmlDeviceGet*", "do": "GPU_IS_LOST"}])"));
  }

 private:
  static std::string state(const std::vector<Share>& shares, const char* faults) {
    Json cards = Json::array({{{"total", "24GiB"}, {"reserved", "300MiB"}},
                              {{"total", "80GiB"}, {"reserved", "600MiB"}}});
    for (const Share& share : shares)
      cards.at(static_cast<std::size_t>(share.card))["processes"].push_back(
          {{"pid", share.process.pid}, {"used", share.used.count}});
    return to_line({{"cards", cards}, {"faults", Json::parse(faults)}});
  }

  FakeProc proc_;
  FakeDriver driver_;
};

class SimulatedPlace : public Place {
 public:
  std::unique_ptr<CardSource> source() override { return make_simulated_source(box_); }
  void holds(const std::vector<Share>& shares) override {
    Json file{{"cards", Json::array()}, {"shares", Json::array()}};
    for (const SimulatedCard& card : box_.cards)
      file["cards"].push_back({{"total_bytes", card.total.count}});
    for (const Share& share : shares)
      file["shares"].push_back({{"pid", share.process.pid},
                                {"start_ticks", share.process.start_ticks},
                                {"card", share.card},
                                {"used_bytes", share.used.count}});
    write(to_line(file));
  }
  void breaks() override { write("{"); }

 private:
  void write(const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(box_path(box_)).parent_path());
    write_file_atomically(box_path(box_), text);
  }

  testing::TemporaryFolder folder_;
  SetEnvironment state_{"HEADROOM_STATE_DIR", folder_.path().string()};
  SimulatedBox box_ = parse_simulated("1xRTX4090,1x80GiB@contract");
};

class SourceContract : public ::testing::TestWithParam<const char*> {
 protected:
  SourceContract() {
    const std::string name = GetParam();
    if (name == "Simulated") {
      place_ = std::make_unique<SimulatedPlace>();
    } else {
      place_ = std::make_unique<NvmlPlace>(name == "Nvml" ? FakeDriver::Version::newest
                                                          : FakeDriver::Version::old);
    }
    source_ = place_->source();
    machine_ = source_->open();
  }

  void read() {
    for (Card& card : machine_.cards) {
      source_->read_gauges(card);
      source_->read_processes(card);
    }
  }
  Card& card(std::size_t i) { return machine_.cards.at(i); }

  std::unique_ptr<Place> place_;
  std::unique_ptr<CardSource> source_;
  Machine machine_;
};

INSTANTIATE_TEST_SUITE_P(Of, SourceContract, ::testing::Values("Nvml", "OldNvml", "Simulated"),
                         [](const auto& source) { return std::string(source.param); });

TEST_P(SourceContract, OpenTellsTheFixedFactsAndNoSample) {
  EXPECT_EQ(machine_.why_no_driver, "");
  ASSERT_EQ(machine_.cards.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(card(static_cast<std::size_t>(i)).index, i);
    EXPECT_FALSE(card(static_cast<std::size_t>(i)).name.empty());
    EXPECT_EQ(card(static_cast<std::size_t>(i)).simulated, machine_.simulated);
    EXPECT_FALSE(card(static_cast<std::size_t>(i)).sampled) << "stamps are the sampler's";
  }
  EXPECT_NE(card(0).uuid, card(1).uuid);
}

TEST_P(SourceContract, AnotherLookFindsTheSameCards) {
  const Machine again = place_->source()->open();
  ASSERT_EQ(again.cards.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(again.cards[i].uuid, card(i).uuid);
}

TEST_P(SourceContract, UsedReservedAndFreeAreTheTotal) {
  const Child child;
  for (const Bytes used : {0_B, 1_B, 3_GiB, 23_GiB, 24_GiB}) {
    place_->holds({{0, child.identity(), used}});
    read();
    for (const Card& card : machine_.cards) {
      ASSERT_TRUE(card.memory);
      const CardMemory& memory = *card.memory;
      EXPECT_EQ(memory.used + memory.reserved.value_or(0_B) + memory.free, memory.total);
      EXPECT_GE(std::min({memory.used, memory.reserved.value_or(0_B), memory.free}), 0_B);
    }
  }
}

TEST_P(SourceContract, AProcessTakesItsBytesFromItsCardOnly) {
  read();
  const Bytes free_before = card(0).memory->free, other_before = card(1).memory->free;
  const Child child;
  place_->holds({{0, child.identity(), 3_GiB}});
  read();
  EXPECT_EQ(free_before - card(0).memory->free, 3_GiB);
  EXPECT_EQ(card(1).memory->free, other_before);
  EXPECT_EQ(card(1).processes->size(), 0u);
}

TEST_P(SourceContract, ReadingChangesNoFixedFact) {
  const Machine before = machine_;
  read();
  place_->breaks();
  read();
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(card(i).index, before.cards[i].index);
    EXPECT_EQ(card(i).uuid, before.cards[i].uuid);
    EXPECT_EQ(card(i).name, before.cards[i].name);
    EXPECT_EQ(card(i).pci, before.cards[i].pci);
    EXPECT_EQ(card(i).capability, before.cards[i].capability);
  }
}

TEST_P(SourceContract, AnIdleCardHasAnEmptyListAndNotAnUnknownOne) {
  read();
  ASSERT_TRUE(card(0).processes);
  EXPECT_EQ(card(0).processes->size(), 0u);
  EXPECT_EQ(card(0).trouble, "");
}

TEST_P(SourceContract, AProcessHasItsOwnerCommandAndStart) {
  const Child child({"sleep", "1234"});
  place_->holds({{1, child.identity(), 3_GiB}});
  read();
  ASSERT_EQ(card(1).processes->size(), 1u);
  const GpuProcess& process = card(1).processes->at(0);
  EXPECT_EQ(process.pid, child.pid());
  EXPECT_EQ(process.start_ticks, child.identity().start_ticks);
  EXPECT_EQ(process.command, "sleep 1234");
  const passwd* me = ::getpwuid(::geteuid());
  EXPECT_EQ(process.user, me != nullptr ? me->pw_name : std::to_string(::geteuid()));
  EXPECT_EQ(process.used, 3_GiB);
  EXPECT_EQ(process.kind, ProcessKind::compute);
  const Seconds age = std::chrono::system_clock::now() - process.started.value();
  EXPECT_TRUE(age > Seconds(-5) && age < Seconds(60)) << age.count();
}

TEST_P(SourceContract, AListReplacesTheOneBefore) {
  const Child one, two;
  place_->holds({{0, one.identity(), 1_GiB}, {0, two.identity(), 2_GiB}});
  read();
  read();
  EXPECT_EQ(card(0).processes->size(), 2u);
  place_->holds({{0, two.identity(), 2_GiB}});
  read();
  ASSERT_EQ(card(0).processes->size(), 1u);
  EXPECT_EQ(card(0).processes->at(0).pid, two.pid());
}

TEST_P(SourceContract, AProcessThatHasEndedIsNotNamed) {
  Child child;
  place_->holds({{0, child.identity(), 1_GiB}});
  child.end();
  read();
  for (const GpuProcess& process : *card(0).processes)
    EXPECT_FALSE(process.pid || process.user || process.command);
}

TEST_P(SourceContract, UnknownStaysUnknownUntilItIsKnownAgain) {
  const Child child;
  place_->holds({{0, child.identity(), 1_GiB}});
  read();
  EXPECT_TRUE(card(0).memory && card(0).processes);
  place_->breaks();
  read();
  EXPECT_FALSE(card(0).memory || card(0).processes || card(0).utilization || card(0).power_w);
  EXPECT_NE(card(0).trouble, "");
  place_->holds({{0, child.identity(), 2_GiB}});
  read();
  EXPECT_EQ(card(0).processes->at(0).used, 2_GiB);
  EXPECT_TRUE(card(0).memory);
  EXPECT_EQ(card(0).trouble, "");
}

TEST_P(SourceContract, ActivityIsAShareOrUnknown) {
  const Child child;
  place_->holds({{0, child.identity(), 1_GiB}});
  source_->read_activity(card(0));  // before anything is known of its processes
  read();
  source_->read_activity(card(0));
  for (const GpuProcess& process : *card(0).processes)
    EXPECT_TRUE(process.activity.value_or(0) >= 0 && process.activity.value_or(0) <= 100);
}

TEST_P(SourceContract, DifferentCardsMayBeReadAtTheSameTime) {
  const Child child;
  place_->holds({{0, child.identity(), 1_GiB}, {1, child.identity(), 2_GiB}});
  const auto read_often = [&](Card& card) {
    for (int i = 0; i < 50; ++i) {
      source_->read_gauges(card);
      source_->read_processes(card);
      source_->read_activity(card);
    }
  };
  std::thread other([&] { read_often(card(1)); });
  read_often(card(0));
  other.join();
  EXPECT_EQ(card(0).processes->at(0).used, 1_GiB);
  EXPECT_EQ(card(1).processes->at(0).used, 2_GiB);
}

}  // namespace
}  // namespace headroom::gpu

// A box that several processes share, with real ones.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/sim/shared_box.h"
#include "headroom/sim/simulate.h"
#include "tests/gpu/fixtures/surroundings.h"
#include "tests/support/temporary_folder.h"

namespace headroom::sim {
namespace {

using namespace headroom::literals;
using gpu::fixtures::SetEnvironment;
using headroom::testing::TemporaryFolder;

std::shared_ptr<Card> card_in(const gpu::SimulatedBox& box) {
  CardOptions options;
  options.capacity = box.cards[0].total;
  options.box = std::make_shared<SharedBox>(box);
  return std::make_shared<Card>(options);
}

bool fits(Card& card, Bytes bytes) {
  try {
    card.free(card.allocate(bytes, 0));
    return true;
  } catch (const c10::OutOfMemoryError&) {
    return false;
  }
}

// Another process that has joined the first card of a box and obeys commands.
class Neighbour {
 public:
  explicit Neighbour(const gpu::SimulatedBox& box) {
    std::array<int, 2> to{}, from{};
    if (::pipe2(to.data(), O_CLOEXEC) != 0 || ::pipe2(from.data(), O_CLOEXEC) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(to[1]);
      obey(box, to[0], from[1]);
    }
    ::close(to[0]);
    ::close(from[1]);
    to_ = to[1];
    from_ = from[0];
  }
  ~Neighbour() {
    kill();
    ::close(to_);
    ::close(from_);
  }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

  // Returns the number of blocks of this size that it got of those it tried; 0 bytes gives all
  // back.
  std::int64_t take(Bytes bytes, std::int64_t blocks = 1) {
    start(bytes, blocks);
    return answer();
  }
  [[nodiscard]] std::int64_t answer() const {
    std::int64_t got = -1;
    EXPECT_EQ(::read(from_, &got, sizeof got), static_cast<ssize_t>(sizeof got));
    return got;
  }
  void start(Bytes bytes, std::int64_t blocks) const {
    const std::array<std::int64_t, 2> order{bytes.count, blocks};
    EXPECT_EQ(::write(to_, order.data(), sizeof order), static_cast<ssize_t>(sizeof order));
  }
  void give_back() { (void)take({}); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  [[noreturn]] static void obey(const gpu::SimulatedBox& box, int from, int to) {
    const auto card = card_in(box);
    std::vector<allocator::BlockId> held;
    std::array<std::int64_t, 2> order{};
    while (::read(from, order.data(), sizeof order) == static_cast<ssize_t>(sizeof order)) {
      std::int64_t got = 0;
      if (order[0] == 0) {
        for (const allocator::BlockId block : held) card->free(block);
        held.clear();
        card->empty_cache();
      }
      try {
        for (; order[0] > 0 && got < order[1]; ++got)
          held.push_back(card->allocate(Bytes{order[0]}, 0));
      } catch (const c10::OutOfMemoryError&) {  // got so many
      }
      if (::write(to, &got, sizeof got) < 0) break;
    }
    ::_exit(0);
  }

  pid_t pid_ = 0;
  int to_ = -1, from_ = -1;
};

class Box : public ::testing::Test {
 protected:
  // Memory in use on the first card, by an inventory.
  [[nodiscard]] Bytes used_in_inventory() const {
    const auto source = gpu::make_simulated_source(box_);
    gpu::Machine machine = source->open();
    source->read_gauges(machine.cards.at(0));
    return machine.cards[0].memory->used;
  }

  TemporaryFolder folder_;
  SetEnvironment state_{"HEADROOM_STATE_DIR", folder_.path().string()};
  gpu::SimulatedBox box_ = gpu::parse_simulated("2x1GiB@lab");
};

TEST_F(Box, AnotherProcesssMemoryIsNotFreeHere) {
  Neighbour other(box_);
  const auto card = card_in(box_);
  EXPECT_EQ(other.take(700_MiB), 1);
  EXPECT_EQ(card->free_bytes(), 324_MiB);
  EXPECT_FALSE(fits(*card, 400_MiB));
  other.give_back();
  EXPECT_EQ(card->free_bytes(), 1_GiB);
  EXPECT_TRUE(fits(*card, 400_MiB));
  EXPECT_EQ(other.take(700_MiB), 0) << "and the other way: cached here is taken, too";
  card->empty_cache();
  EXPECT_EQ(other.take(700_MiB), 1);
}

TEST_F(Box, IsJoinedByASimulation) {
  Neighbour other(box_);
  EXPECT_EQ(other.take(700_MiB), 1);
  {
    const Simulation here = simulate(box_);
    EXPECT_EQ(here.card(0).free_bytes(), 324_MiB);
    EXPECT_EQ(here.card(1).free_bytes(), 1_GiB) << "the other card is unused";
    const auto x = torch::empty({64, 1024, 1024}, here.device(0));
    EXPECT_EQ(other.take(200_MiB), 0);
    EXPECT_EQ(used_in_inventory(), 956_MiB);
    EXPECT_THROW((void)torch::empty({64, 1024, 1024}, here.device(0)), c10::OutOfMemoryError);
  }
  EXPECT_EQ(used_in_inventory(), 700_MiB) << "what the simulation held is free with its end";
  EXPECT_EQ(other.take(200_MiB), 1);
}

TEST_F(Box, AKilledProcessLeavesItsShareToTheOthers) {
  Neighbour other(box_), third(box_);
  EXPECT_EQ(other.take(700_MiB), 1);
  EXPECT_EQ(third.take(200_MiB), 1);
  const auto card = card_in(box_);
  EXPECT_FALSE(fits(*card, 400_MiB));
  other.kill();
  EXPECT_TRUE(fits(*card, 800_MiB)) << "the file is unchanged; the process is gone";
  third.kill();
  EXPECT_EQ(card->free_bytes(), 1_GiB - 800_MiB);
}

TEST_F(Box, ProcessesThatRaceTakeTheCardOnce) {
  std::vector<std::unique_ptr<Neighbour>> others;
  for (int i = 0; i < 4; ++i) others.push_back(std::make_unique<Neighbour>(box_));
  for (const auto& other : others) other->start(16_MiB, 1000);
  std::int64_t got = 0;
  for (const auto& other : others) got += other->answer();
  EXPECT_EQ(got, 64) << "a card has 64 blocks of 16 MiB, however many ask for them";
  EXPECT_EQ(used_in_inventory(), 1_GiB);
}

TEST_F(Box, StaysConsistentWhenAnyProcessIsKilledAtAnyTime) {
  const auto card = card_in(box_);
  for (int round = 0; round < 20; ++round) {
    Neighbour other(box_);
    EXPECT_GE(other.take(20_MiB), 0) << "it is there";
    other.start(20_MiB, 40);
    for (int i = 0; i < round; ++i) {
      EXPECT_TRUE(fits(*card, 40_MiB));
      card->empty_cache();
    }
    other.kill();
    EXPECT_EQ(card->free_bytes(), 1_GiB);
    EXPECT_EQ(used_in_inventory(), 0_B);
  }
}

TEST_F(Box, AFileWrittenByHandIsNoticed) {
  const auto card = card_in(box_);
  EXPECT_TRUE(fits(*card, 1_MiB));
  const ProcessStat parent = *ProcessTable().stat(::getppid());
  write_file_atomically(
      gpu::box_path(box_),
      R"({"cards":[{"total_bytes":1073741824},{"total_bytes":1073741824}],"shares":[{"pid":)" +
          std::to_string(parent.identity.pid) + ",\"start_ticks\":" +
          std::to_string(parent.identity.start_ticks) + R"(,"card":0,"used_bytes":1000000000}]})");
  EXPECT_FALSE(fits(*card, 100_MiB));
  card->empty_cache();
  EXPECT_EQ(used_in_inventory(), 1000000000_B) << "and kept";
}

TEST_F(Box, NoticesThatTheFileWasCut) {
  const auto card = card_in(box_);
  EXPECT_TRUE(fits(*card, 20_MiB));
  std::filesystem::resize_file(gpu::box_path(box_), 0);
  EXPECT_THROW((void)used_in_inventory(), Error);
  EXPECT_THROW((void)fits(*card, 30_MiB), Error) << "a file that was cut has changed";
}

TEST_F(Box, WritesTheFileOnlyWhenTheDriverIsAsked) {
  const auto card = card_in(box_);
  EXPECT_TRUE(fits(*card, 20_MiB));
  const auto written = std::filesystem::last_write_time(gpu::box_path(box_));
  const std::string text = *read_file(gpu::box_path(box_));
  std::filesystem::last_write_time(gpu::box_path(box_), written - std::chrono::hours(1));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(fits(*card, 20_MiB)) << "from the cache";
  EXPECT_EQ(std::filesystem::last_write_time(gpu::box_path(box_)), written - std::chrono::hours(1));
  EXPECT_EQ(*read_file(gpu::box_path(box_)), text);
  EXPECT_TRUE(fits(*card, 40_MiB));
  EXPECT_NE(*read_file(gpu::box_path(box_)), text);
}

TEST_F(Box, ACardWithSharesBeyondItsCapacityHasNothingFree) {
  Neighbour other(box_);
  EXPECT_EQ(other.take(900_MiB), 1);
  CardOptions options;
  options.capacity = 1_GiB;
  options.context = 300_MiB;
  options.box = std::make_shared<SharedBox>(box_);
  const auto card = std::make_shared<Card>(options);
  EXPECT_EQ(card->free_bytes(), 0_B);
  EXPECT_FALSE(fits(*card, 1_MiB));
  EXPECT_EQ(used_in_inventory(), 1_GiB);
}

TEST_F(Box, AContextIsAShareBeforeTheFirstTensor) {
  const gpu::SimulatedBox cards = gpu::parse_simulated("1xRTX4090@home");
  const Simulation here = simulate(cards);
  const Bytes context = *here.card(0).options().profile->context;
  const auto source = gpu::make_simulated_source(cards);
  gpu::Machine machine = source->open();
  source->read_gauges(machine.cards.at(0));
  EXPECT_EQ(machine.cards[0].memory->used, context);
}

TEST_F(Box, WithOtherCardsIsRefused) {
  const auto card = card_in(box_);
  EXPECT_TRUE(fits(*card, 1_MiB));
  EXPECT_THROW((void)simulate("2x2GiB@lab"), UsageError);
  EXPECT_THROW((void)simulate("3x1GiB@lab"), UsageError);
  EXPECT_EQ(simulate("2x2GiB@other").cards(), 2);
}

TEST_F(Box, InAFolderThatIsNotWritableIsRefused) {
  std::ofstream(folder_.path() / "boxes") << "a file where the folder should be";
  EXPECT_THROW((void)simulate(box_), WriteError);
  EXPECT_EQ(simulate("1x1GiB").cards(), 1) << "nothing of it stays";
}

TEST_F(Box, AForkedChildDoesNotPublishItsUseOfItsParentsCards) {
  const auto card = card_in(box_);
  const auto block = card->allocate(100_MiB, 0);
  const pid_t child = ::fork();
  if (child == 0) {
    card->free(block);
    card->empty_cache();
    (void)card->allocate(200_MiB, 0);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(used_in_inventory(), 100_MiB);
  card->free(block);
}

}  // namespace
}  // namespace headroom::sim

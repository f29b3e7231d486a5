// The variables that name a command its cards.

#include "headroom/supervise/place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/watch/machines.h"

namespace headroom::supervise {
namespace {

using namespace headroom::literals;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;
using ::testing::StartsWith;

Place two_cards() {
  const gpu::Machine machine = headroom::testing::two_cards(Clock::now());
  Place place;
  place.cards = {{machine.cards[1], 20_GiB}, {machine.cards[0], 12_GiB}};
  return place;
}

class PlaceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) ::unsetenv(name);
  }
  void TearDown() override { SetUp(); }
};

TEST_F(PlaceTest, NamesTheCardsByTheDriversNumbersInPciOrder) {
  const auto variables = environment_of(two_cards(), gpu::parse_devices("all"), false);
  EXPECT_THAT(variables, Contains("CUDA_VISIBLE_DEVICES=1,0"));
  EXPECT_THAT(variables, Contains("CUDA_DEVICE_ORDER=PCI_BUS_ID"));
  EXPECT_THAT(variables, Contains("HEADROOM_GPUS=auto")) << "of those that are visible";
}

TEST_F(PlaceTest, NamesTheCardsByUuidIfAsked) {
  EXPECT_THAT(environment_of(two_cards(), gpu::parse_devices("all"), true),
              Contains("CUDA_VISIBLE_DEVICES=GPU-00000000-0000-0000-0000-000000000001,"
                       "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"));
}

TEST_F(PlaceTest, ASliceIsAlwaysNamedByUuid) {
  Place place = two_cards();
  place.cards[0].card.slice = gpu::MigSlice{.parent = {}, .gpu_instance = 1, .compute_instance = 0};
  EXPECT_THAT(environment_of(place, gpu::parse_devices("all"), false),
              Contains("CUDA_VISIBLE_DEVICES=GPU-00000000-0000-0000-0000-000000000001,0"));
}

TEST_F(PlaceTest, HeadroomProgramsGetTheSimulatedBox) {
  EXPECT_THAT(environment_of(two_cards(), gpu::parse_devices("sim:2x24GiB@lab"), false),
              Contains("HEADROOM_GPUS=sim:2x24GiB@lab"));
}

TEST_F(PlaceTest, AnAllocatorSettingOfTheUserStays) {
  EXPECT_THAT(environment_of(two_cards(), gpu::parse_devices("all"), false),
              Contains("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"));
  ::setenv("PYTORCH_ALLOC_CONF", "", 1);  // set to nothing is set
  EXPECT_THAT(environment_of(two_cards(), gpu::parse_devices("all"), false),
              Not(Contains(StartsWith("PYTORCH_CUDA_ALLOC_CONF="))));
}

TEST_F(PlaceTest, OnTheCpuNoCardIsVisible) {
  EXPECT_THAT(environment_of({}, gpu::parse_devices("cpu"), false),
              ElementsAre("CUDA_VISIBLE_DEVICES=", "HEADROOM_GPUS=cpu"));
}

TEST_F(PlaceTest, HasTheRoomOfItsTightestCard) {
  EXPECT_EQ(two_cards().room(), 12_GiB);
  EXPECT_EQ(two_cards().name(), "GPU 1 and GPU 0");
  EXPECT_FALSE(Place{}.room());
  EXPECT_EQ(Place{}.name(), "the CPU");
}

}  // namespace
}  // namespace headroom::supervise

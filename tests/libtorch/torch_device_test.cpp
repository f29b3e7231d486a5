#include "headroom/libtorch/torch_device.h"

#include <gtest/gtest.h>
#include <torch/headeronly/version.h>

#include "headroom/base/error.h"
#include "headroom/libtorch/build_info.h"

namespace headroom::libtorch {
namespace {

using namespace headroom::literals;

gpu::Card card(int index, const std::string& name) {
  gpu::Card card;
  card.index = index;
  card.name = name;
  card.uuid.bytes[0] = static_cast<std::uint8_t>(index + 1);
  card.memory = gpu::CardMemory{.total = 24_GiB, .used = 0_GiB, .free = 24_GiB};
  card.processes.emplace();
  card.sampled = Clock::now();
  return card;
}

gpu::Machine two_cards() {
  gpu::Machine machine;
  machine.cards = {card(0, "NVIDIA GeForce RTX 3060"), card(1, "NVIDIA GeForce RTX 4090")};
  return machine;
}

gpu::Selection choice_of(const gpu::Card& picked) {
  return {.picked = {{.card = picked, .usable = 1_GiB}}};
}

TEST(TorchDevice, IsTheCardInCudasOwnCount) {
  const gpu::Machine machine = two_cards();
  const auto number = [&](const gpu::CudaEnvironment& environment) {
    return torch_device(choice_of(machine.cards[1]), machine, environment);
  };
  EXPECT_EQ(number({.device_order = "PCI_BUS_ID"}), c10::Device(c10::kCUDA, 1));
  EXPECT_EQ(number({}), c10::Device(c10::kCUDA, 0)) << "the fastest card comes first";
  EXPECT_EQ(number({.device_order = "PCI_BUS_ID", .visible_devices = "1"}),
            c10::Device(c10::kCUDA, 0));
}

TEST(TorchDevice, RefusesACardThatThisProcessCannotSee) {
  const gpu::Machine machine = two_cards();
  const gpu::CudaEnvironment hidden{.device_order = "PCI_BUS_ID", .visible_devices = "0"};
  EXPECT_THROW((void)torch_device(choice_of(machine.cards[1]), machine, hidden), UnavailableError);
}

TEST(TorchDevice, IsTheCpuOnlyIfThatWasTheAnswer) {
  const gpu::Machine none;
  const auto allowed = gpu::find_best_device(none, {.need = 1_GiB, .allow_cpu = true});
  EXPECT_EQ(torch_device(allowed, none, {}), c10::Device(c10::kCPU));
  const auto refused = gpu::find_best_device(none, {.need = 1_GiB});
  EXPECT_THROW((void)torch_device(refused, none, {}), UnavailableError);
}

TEST(BuildInfo, TellsTheLibraryThatIsLoaded) {
  EXPECT_EQ(build_info().version, TORCH_VERSION);
  EXPECT_GE(build_info().intra_op_threads, 1);
}

}  // namespace
}  // namespace headroom::libtorch

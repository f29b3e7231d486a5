// The operators on simulated cards: no memory beside what they are given, in both modes the same
// refusals, and on a card that computes the CPU's bits.
#include <gtest/gtest.h>

#include "headroom/sim/card.h"
#include "headroom/sim/simulate.h"
#include "tests/kernels/matrices.h"

namespace headroom::kernels {
namespace {

class OnSim : public testing::TestWithParam<sim::Mode> {
 protected:
  sim::Simulation box = sim::simulate(
      "1x8GiB", {.mode = GetParam(), .cublas_workspaces = false, .check_streams = true});
  sim::Card& card = box.card(0);
  c10::Device device = box.device(0);

  [[nodiscard]] std::int64_t current() const {
    return card.statistics().requested_bytes.all.current;
  }
  // The most bytes during `work` beyond those before it.
  template <typename Work>
  std::int64_t rise_of(const Work& work) {
    card.reset_peaks();
    const std::int64_t before = current();
    work();
    return card.statistics().requested_bytes.all.peak - before;
  }
};

TEST_P(OnSim, PackingHoldsFloatScalesOfANestedMatrixAndNothingElse) {
  const at::Tensor weight = at::empty({256, 512}, at::TensorOptions(device));
  for (const auto& [format, nested, temporary] : {std::tuple{Format::int8, false, 0},
                                                  {Format::nf4, false, 0},
                                                  {Format::nf4, true, 256 * 512 / 64 * 4}}) {
    const Packed packed = make_packed(format, 256, 512, device, nested);
    const std::int64_t rise = rise_of([&] { pack(weight, packed); });
    EXPECT_LE(rise, temporary + 512) << name_of(format, nested);
    EXPECT_GE(rise, temporary) << name_of(format, nested);
  }
}

TEST_P(OnSim, UnpackingTakesNoMemory) {
  const Packed packed = make_packed(Format::nf4, 256, 512, device);
  const at::Tensor tile = at::empty({64, 512}, at::TensorOptions(device).dtype(at::kBFloat16));
  EXPECT_EQ(rise_of([&] { unpack(packed, 128, 0, tile); }), 0);
  EXPECT_EQ(rise_of([&] { unpack(packed, 3, 100, tile.narrow(1, 0, 200)); }), 0);
}

TEST_P(OnSim, MatricesTakeTheBytesThatTheySay) {
  const std::int64_t before = current();
  const Packed nf4 = make_packed(Format::nf4, 4096, 4096, device);
  EXPECT_LE(static_cast<double>(current() - before), 0.517 * 4096 * 4096);
  const std::int64_t between = current();
  const Packed int8 = make_packed(Format::int8, 4096, 4096, device);
  EXPECT_EQ(current() - between, 4096 * (4096 + 4));
}

TEST_P(OnSim, WrongArgumentsAreRefused) {
  const Packed packed = make_packed(Format::nf4, 8, 64, device);
  const at::TensorOptions options(device);
  EXPECT_THROW(unpack(packed, 0, 0, at::empty({8, 64}, options.dtype(at::kInt))), c10::Error);
  Packed wrong = packed;
  wrong.codes = packed.codes.narrow(0, 0, 100);
  EXPECT_THROW(unpack(wrong, 0, 0, at::empty({8, 64}, options)), c10::Error);
}

INSTANTIATE_TEST_SUITE_P(Kernels, OnSim, testing::Values(sim::Mode::shape_only, sim::Mode::compute),
                         [](const auto& mode) {
                           return mode.param == sim::Mode::compute ? "Computing" : "ShapeOnly";
                         });

TEST(OnSimComputing, GivesTheBitsOfTheCpu) {
  const auto box = sim::simulate("1x8GiB", {.mode = sim::Mode::compute});
  const at::Tensor weight = some_matrix(70, 1000, at::kBFloat16);
  for (const auto& [format, nested] : {std::pair{Format::int8, false}, {Format::nf4, true}}) {
    const Packed there = make_packed(format, 70, 1000, box.device(0), nested);
    pack(weight.to(box.device(0)), there);
    const Packed here = packed_from(weight, format, nested);
    const at::Tensor tile = at::empty({70, 1000}, weight.options().device(box.device(0)));
    unpack(there, 0, 0, tile);
    EXPECT_TRUE(same_bits(tile.cpu(), unpacked(here, at::kBFloat16))) << name_of(format, nested);
    EXPECT_TRUE(same_bits(there.codes.cpu(), here.codes)) << name_of(format, nested);
  }
}

}  // namespace
}  // namespace headroom::kernels

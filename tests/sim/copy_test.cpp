// Copies between cards and the host, and the memory that they take on the card.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/libtorch/operator_refusal.h"
#include "headroom/sim/simulate.h"

namespace headroom::sim {
namespace {

using namespace headroom::literals;
using torch::Tensor;

Tensor numbers(at::IntArrayRef sizes) {
  return torch::arange(at::numel(torch::empty(sizes)), torch::kFloat).view(sizes);
}

class Copy : public ::testing::Test {
 protected:
  [[nodiscard]] torch::Device card(int index = 0) const { return box_.device(index); }

  // The bytes that `copy` takes for a moment and gives back, on the first card.
  template <typename Function>
  [[nodiscard]] std::int64_t taken_by(Function copy) const {
    Card& card = box_.card(0);
    const std::int64_t before = card.statistics().allocated_bytes.all.current;
    card.reset_peaks();
    copy();
    EXPECT_EQ(card.statistics().allocated_bytes.all.current, before) << "what it took is back";
    return card.statistics().allocated_bytes.all.peak - before;
  }

  Simulation box_ = simulate("2x1GiB", {.mode = Mode::compute});
};

TEST_F(Copy, ToACardAndBackKeepsTheValues) {
  const Tensor x = numbers({3, 4});
  EXPECT_TRUE(torch::equal(x.to(card()).cpu(), x));
  EXPECT_TRUE(torch::equal(x.to(card()).to(card(1)).cpu(), x));
  EXPECT_TRUE(torch::equal(x.t().to(card()).cpu(), x.t()));
  EXPECT_TRUE(torch::equal(x.to(card()).t().cpu(), x.t()));
  EXPECT_TRUE(torch::equal(x.to(card()).slice(1, 1, 4, 2).cpu(), x.slice(1, 1, 4, 2)));
}

TEST_F(Copy, ConvertsTypesInEveryDirection) {
  const Tensor x = numbers({5});
  for (const bool non_blocking : {false, true}) {
    const Tensor half = x.to(card(), torch::kHalf, non_blocking);
    EXPECT_EQ(half.scalar_type(), torch::kHalf);
    EXPECT_TRUE(torch::equal(half.to(torch::kCPU, torch::kFloat, non_blocking), x));
    EXPECT_TRUE(
        torch::equal(half.to(card(1), torch::kLong, non_blocking).cpu(), x.to(torch::kLong)));
    EXPECT_TRUE(torch::equal(half.to(torch::kDouble).cpu(), x.to(torch::kDouble)));
  }
}

TEST_F(Copy, WritesIntoPlacesOfOtherLayoutAndBroadcasts) {
  for (const bool non_blocking : {false, true}) {
    Tensor wide = torch::zeros({4, 6}, card());
    wide.slice(1, 0, 6, 2).copy_(numbers({4, 3}).to(torch::kDouble), non_blocking);
    EXPECT_TRUE(torch::equal(wide.cpu().slice(1, 0, 6, 2), numbers({4, 3})));
    EXPECT_EQ(wide.slice(1, 1, 6, 2).abs().sum().item<float>(), 0);
    wide.copy_(numbers({6}).to(torch::kInt), non_blocking);
    EXPECT_TRUE(torch::equal(wide.cpu(), numbers({6}).expand({4, 6})));
    Tensor host = torch::zeros({6, 4});
    host.t().copy_(wide, non_blocking);
    EXPECT_TRUE(torch::equal(host, wide.cpu().t()));
    EXPECT_THROW(wide.copy_(numbers({5})), c10::Error) << "does not broadcast";
  }
}

TEST_F(Copy, KeepsConjugationWhatItIs) {
  const Tensor x = torch::complex(numbers({4}), numbers({4}) + 1);
  EXPECT_TRUE(torch::equal(x.conj().to(card()).cpu(), x.conj()));
  EXPECT_TRUE(torch::equal(x.to(card()).conj().cpu(), x.conj()));
  EXPECT_TRUE(torch::equal(x.to(card()).conj().to(torch::kCPU, torch::kComplexDouble),
                           x.conj().to(torch::kComplexDouble)));
}

// ---- Temporaries, as aten/src/ATen/native/cuda/Copy.cu ----

TEST_F(Copy, OfTheSameBytesTakesNoTemporaryMemory) {
  const Tensor host = numbers({512, 512});
  Tensor there = host.to(card());
  Tensor there_t = torch::empty({512, 512}, card()).t();
  for (const bool non_blocking : {false, true}) {
    EXPECT_EQ(taken_by([&] { there.copy_(host, non_blocking); }), 0);
    EXPECT_EQ(taken_by([&] { there_t.copy_(host.t(), non_blocking); }), 0)
        << "the same order of elements, whatever it is called";
    EXPECT_EQ(taken_by([&] { (void)there.to(torch::kCPU, non_blocking); }), 0);
  }
}

TEST_F(Copy, ConvertsOnTheHostUnlessItIsNonBlocking) {
  const Tensor host = numbers({512, 512});
  Tensor half = torch::empty({512, 512}, torch::device(card()).dtype(torch::kHalf));
  EXPECT_EQ(taken_by([&] { half.copy_(host); }), 0);
  EXPECT_EQ(taken_by([&] { half.copy_(host, true); }), (1_MiB).count)
      << "floats go over, the card makes halves of them";
  Tensor back = torch::empty({512, 512});
  EXPECT_EQ(taken_by([&] { back.copy_(half); }), 0) << "halves go over";
  EXPECT_EQ(taken_by([&] { back.copy_(half, true); }), (1_MiB).count) << "floats go over";
}

TEST_F(Copy, GathersStridedElementsOnTheCard) {
  const Tensor wide = torch::zeros({512, 1024}, card());
  EXPECT_EQ(taken_by([&] { (void)wide.slice(1, 0, 1024, 2).cpu(); }), (1_MiB).count);
  Tensor every_other = wide.slice(1, 0, 1024, 2);
  EXPECT_EQ(taken_by([&] { every_other.copy_(numbers({512, 512})); }), (1_MiB).count);
  EXPECT_EQ(taken_by([&] {
              every_other.copy_(numbers({512, 512}).to(card(1)));
            }),
            0)
      << "cards reach each other's memory";
}

// ---- Pinned memory ----

TEST_F(Copy, KnowsPinnedMemory) {
  const Tensor x = numbers({1000});
  EXPECT_FALSE(x.is_pinned());
  const Tensor pinned = x.pin_memory();
  EXPECT_TRUE(pinned.is_pinned());
  EXPECT_TRUE(pinned.slice(0, 500).is_pinned()) << "views, too";
  EXPECT_TRUE(torch::equal(pinned, x));
  EXPECT_TRUE(torch::equal(pinned.to(card(), torch::kFloat, true).cpu(), x));
  EXPECT_TRUE(torch::empty({4}, torch::TensorOptions().pinned_memory(true)).is_pinned());
  EXPECT_EQ(box_.card(0).statistics().allocation.all.current, 0) << "it is the host's";
}

// ---- Shape-only ----

TEST(ShapeOnlyCopy, ReadsZerosOnTheHostAndTakesTheSameMemory) {
  const Simulation box = simulate("1x1GiB");
  Card& card = box.card(0);
  const Tensor x = numbers({512, 512}).to(box.device(0), torch::kHalf, true);
  EXPECT_EQ(card.statistics().allocated_bytes.all.peak, (1_MiB + 512_KiB).count)
      << "floats on the card for a moment";
  const std::uint64_t before = card.values_read_as_zero();
  const Tensor host = x.cpu();
  EXPECT_EQ(card.values_read_as_zero(), before + 1);
  EXPECT_EQ(host.abs().sum().item<float>(), 0);
  EXPECT_EQ(host.scalar_type(), torch::kHalf);
  Tensor some = torch::ones({4, 4});
  some.select(0, 1).copy_(torch::randn({4}, box.device(0)));
  EXPECT_EQ(some.sum().item<float>(), 12) << "zeros only where it was written";
}

TEST(ShapeOnlyCopy, ATensorMadeWithoutDataCannotBeReadInComputeMode) {
  const Simulation box = simulate("2x1GiB");
  const Tensor x = torch::randn({3}, box.device(0));
  box.card(0).set_mode(Mode::compute);
  EXPECT_THROW((void)x.cpu(), libtorch::DeviceError);
  EXPECT_THROW((void)(x + 1), libtorch::DeviceError);
}

// ---- Files ----

TEST(SavedTensors, ComeBackToTheirCardOrToAnother) {
  const Simulation box = simulate("2x1GiB", {.mode = Mode::compute});
  const Tensor x = torch::randn({6, 5});
  std::stringstream file;
  torch::save(x.to(box.device(1)).t(), file);
  Tensor loaded;
  torch::load(loaded, file);
  EXPECT_EQ(loaded.device(), box.device(1));
  EXPECT_TRUE(torch::equal(loaded.cpu(), x.t()));
  file.seekg(0);
  torch::load(loaded, file, box.device(0));
  EXPECT_EQ(loaded.device(), box.device(0));
  EXPECT_TRUE(torch::equal(loaded.cpu(), x.t()));
}

TEST(SavedTensors, OfAShapeOnlyCardAreZerosWhereNothingIsKnown) {
  const Simulation box = simulate("1x1GiB");
  std::stringstream file;
  torch::save(torch::randn({6, 5}, box.device(0)), file);
  Tensor loaded;
  torch::load(loaded, file, torch::kCPU);
  EXPECT_TRUE(torch::equal(loaded, torch::zeros({6, 5})));
  EXPECT_EQ(box.card(0).values_read_as_zero(), 1u);
}

TEST(SetStorage, SharesTheMemoryAndGrowsItIfNeeded) {
  const Simulation box = simulate("1x1GiB", {.mode = Mode::compute});
  const Tensor x = torch::arange(6, box.device(0));
  Tensor y = torch::empty({0}, x.options());
  y.set_(x.storage(), 1, {2, 2}, {1, 2});
  EXPECT_TRUE(torch::equal(y.cpu(), torch::tensor({{1, 3}, {2, 4}})));
  y.set_(x.storage(), 0, {100}, {1});
  EXPECT_EQ(x.storage().nbytes(), 800u);
  EXPECT_TRUE(torch::equal(y.slice(0, 0, 6).cpu(), torch::arange(6)));
  y.set_();
  EXPECT_EQ(y.numel(), 0);
  EXPECT_EQ(y.device(), box.device(0));
}

}  // namespace
}  // namespace headroom::sim

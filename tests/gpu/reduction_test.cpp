// Beside the buffers that an H100's allocator recorded in training steps of transformers' models
// (torch 2.11.0 for CUDA 13.0, November 2026).
#include "headroom/gpu/reduction.h"

#include <gtest/gtest.h>

namespace headroom::gpu {
namespace {

Bytes parts(std::int64_t rows, std::int64_t columns) {
  return memory_of(sum_of_rows(rows, columns), *find_profile("hopper")).parts;
}

TEST(Reduction, TakesWhatAnH100TookForTheGradientsOfBiases) {
  EXPECT_EQ(parts(32 * 128, 3072).count, 100663296);  // BERT, bfloat16
  EXPECT_EQ(parts(32 * 128, 768).count, 25165824);
  EXPECT_EQ(parts(32 * 198, 1536).count, 77856768);  // DeiT, float32
  EXPECT_EQ(parts(32 * 198, 384).count, 19464192);
  EXPECT_EQ(parts(32 * 197, 384).count, 19464192);
  EXPECT_EQ(parts(32 * 197, 768).count, 38928384);  // ViT, bfloat16
}

TEST(Reduction, TakesWhatAnH100TookForTheMeansOfAdafactor) {
  EXPECT_EQ(parts(32128, 512).count, 131596288);
  EXPECT_EQ(parts(2048, 512).count, 8388608);
}

TEST(Reduction, TakesNothingWhereOneBlockDoes) {
  EXPECT_EQ(parts(64, 768), Bytes{});
  EXPECT_EQ(parts(4096, 1), Bytes{}) << "a row of neighbours";
  const Reduction rows{.results = 4096, .elements = 2048, .innermost = true, .at_once = 4};
  EXPECT_EQ(memory_of(rows, *find_profile("hopper")).parts, Bytes{});
  EXPECT_EQ(memory_of(sum_of_rows(4096, 768), DeviceProfile()).parts, Bytes{});
}

TEST(Reduction, TakesLessOnASmallerChip) {
  const Reduction sum = sum_of_rows(32768, 768);
  EXPECT_LT(memory_of(sum, *find_profile("turing")).parts,
            memory_of(sum, *find_profile("hopper")).parts);
}

TEST(LayerNormPartialRows, AreTakenForManyRowsThatAreShortForTheChip) {
  const DeviceProfile* const h100 = profile_of_capability(9, 0);  // 132 multiprocessors
  EXPECT_EQ(layer_norm_partial_rows(1 << 16, 768, h100), 0);
  EXPECT_EQ(layer_norm_partial_rows(1 << 17, 768, h100), 32 * 1024 / 24);
  EXPECT_EQ(layer_norm_partial_rows(1 << 17, 2048, h100), 32 * 1024 / 64);
  EXPECT_EQ(layer_norm_partial_rows(1 << 17, 2048, nullptr), 0) << "too long for an A100";
  EXPECT_EQ(layer_norm_partial_rows(1 << 17, 2112, h100), 0);
}

}  // namespace
}  // namespace headroom::gpu

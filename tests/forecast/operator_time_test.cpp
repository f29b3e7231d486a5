#include "headroom/forecast/operator_time.h"

#include <gtest/gtest.h>

namespace headroom::forecast {
namespace {

double operations(const char* name, std::vector<Shape> inputs, Shape output) {
  return product_operations(
      {.name = name, .inputs = std::move(inputs), .output = std::move(output)});
}

TEST(ProductOperations, AreTwoForEachElementOfTheInnerSide) {
  EXPECT_EQ(operations("aten::mm", {{8, 16}, {16, 4}}, {8, 4}), 2 * 8 * 16 * 4);
  EXPECT_EQ(operations("aten::addmm", {{4}, {8, 16}, {16, 4}}, {8, 4}), 2 * 8 * 16 * 4);
  EXPECT_EQ(operations("aten::bmm", {{3, 8, 16}, {3, 16, 4}}, {3, 8, 4}), 3 * 2 * 8 * 16 * 4);
}

// The formula of torch.utils.flop_counter: an output pixel takes a product over its channels and
// the kernel; backward makes two of them.
TEST(ProductOperations, OfAConvolutionCountItsKernelForEachPixel) {
  const std::int64_t forward = 2 * (2 * 6 * 10 * 10) * (3 * 5 * 5);
  EXPECT_EQ(operations("aten::convolution", {{2, 3, 14, 14}, {6, 3, 5, 5}}, {2, 6, 10, 10}),
            forward);
  EXPECT_EQ(operations("aten::convolution_backward", {{2, 6, 10, 10}, {2, 3, 14, 14}, {6, 3, 5, 5}},
                       {2, 3, 14, 14}),
            2 * forward);
}

TEST(ProductOperations, OfAnAttentionCountScoresAndValues) {
  const Shape heads{2, 12, 128, 64};
  const std::int64_t product = 2 * 2 * 12 * 128 * 128 * 64;
  EXPECT_EQ(operations("aten::_scaled_dot_product_flash_attention", {heads, heads, heads}, heads),
            2 * product);
  EXPECT_EQ(operations("aten::_scaled_dot_product_flash_attention_backward",
                       {heads, heads, heads, heads}, heads),
            5 * product);
}

TEST(OperatorSeconds, AreBoundedByTheRateOrByTheBandwidth) {
  const gpu::CatalogueCard& card = gpu::card_named("RTX 4090");
  const OperatorWork copy{.name = "aten::clone", .output = {1 << 20}, .bytes = 8 << 20};
  OperatorWork product{.name = "aten::mm",
                       .inputs = {{4096, 4096}, {4096, 4096}},
                       .output = {4096, 4096},
                       .bytes = 3.0 * 4 * 4096 * 4096};
  EXPECT_GT(operator_seconds(copy, &card), (8 << 20) / (card.bandwidth_gb_s * 1e9));
  const double in_float = operator_seconds(product, &card);
  EXPECT_GT(in_float, 2.0 * 4096 * 4096 * 4096 / (*card.rates.fp32 * 1e12));
  product.arithmetic = Arithmetic::bfloat16;
  EXPECT_LT(operator_seconds(product, &card), in_float);
  EXPECT_EQ(operator_seconds({.name = "aten::view"}, &card), 0);
}

}  // namespace
}  // namespace headroom::forecast

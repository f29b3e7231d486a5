#include "programs.h"

namespace headroom::coverage {
namespace {

// Pooling that also returns the positions of its maxima.
template <typename Module, typename Options>
Program with_indices(Sizes sizes, Options options) {
  return [=](Trial& t) -> Outputs {
    Module module = t.build<Module>(options);
    return module->forward_with_indices(t.x(sizes));
  };
}

// Unpooling of the result of a pooling with the same options.
template <typename Module, typename Pool, typename Options, typename PoolOptions>
Program undoing(Sizes sizes, Options options, PoolOptions pool_options) {
  return [=](Trial& t) -> Outputs {
    Pool pool = t.build<Pool>(pool_options);
    const auto [pooled, indices] = pool->forward_with_indices(t.x(sizes));
    Module module = t.build<Module>(options);
    return module->forward(pooled, indices);
  };
}

}  // namespace

Cases pooling_cases() {
  using Fractional2 = nn::FractionalMaxPool2dOptions;
  using Fractional3 = nn::FractionalMaxPool3dOptions;
  using torch::ExpandingArray;
  using Maybe2 = nn::AdaptiveMaxPool2dOptions;
  using MaybeAvg2 = nn::AdaptiveAvgPool2dOptions;
  using MaybeAvg3 = nn::AdaptiveAvgPool3dOptions;
  using Ratio2 = ExpandingArray<2, double>;
  using Ratio3 = ExpandingArray<3, double>;
  return {
      {"AvgPool1d", "", on_x<nn::AvgPool1d>({2, 3, 9}, nn::AvgPool1dOptions(3))},
      {"AvgPool1d", "rounding up",
       on_x<nn::AvgPool1d>({2, 3, 10}, nn::AvgPool1dOptions(3).stride(2).ceil_mode(true))},
      {"AvgPool2d", "", on_x<nn::AvgPool2d>({2, 3, 8, 9}, nn::AvgPool2dOptions(3))},
      {"AvgPool2d", "of one image", on_x<nn::AvgPool2d>({3, 8, 9}, nn::AvgPool2dOptions(3))},
      {"AvgPool2d", "padded",
       on_x<nn::AvgPool2d>(
           {2, 3, 8, 9},
           nn::AvgPool2dOptions({2, 3}).stride(2).padding(1).ceil_mode(true).count_include_pad(
               false))},
      {"AvgPool2d", "with a divisor",
       on_x<nn::AvgPool2d>({2, 3, 8, 9}, nn::AvgPool2dOptions(3).divisor_override(2))},
      {"AvgPool3d", "", on_x<nn::AvgPool3d>({2, 3, 4, 5, 6}, nn::AvgPool3dOptions(2))},
      {"AvgPool3d", "padded",
       on_x<nn::AvgPool3d>({2, 3, 4, 5, 6},
                           nn::AvgPool3dOptions(3).stride(2).padding(1).ceil_mode(true))},
      {"MaxPool1d", "", on_x<nn::MaxPool1d>({2, 3, 9}, nn::MaxPool1dOptions(3))},
      {"MaxPool1d", "with indices",
       with_indices<nn::MaxPool1d>({2, 3, 9}, nn::MaxPool1dOptions(3).stride(2).padding(1))},
      {"MaxPool2d", "", on_x<nn::MaxPool2d>({2, 3, 8, 9}, nn::MaxPool2dOptions(3))},
      {"MaxPool2d", "of one image", on_x<nn::MaxPool2d>({3, 8, 9}, nn::MaxPool2dOptions(3))},
      {"MaxPool2d", "of no image", on_x<nn::MaxPool2d>({0, 3, 8, 9}, nn::MaxPool2dOptions(3))},
      {"MaxPool2d", "rounding up",
       on_x<nn::MaxPool2d>({2, 3, 8, 9},
                           nn::MaxPool2dOptions(3).stride(2).padding(1).ceil_mode(true))},
      {"MaxPool2d", "dilated",
       on_x<nn::MaxPool2d>({2, 3, 8, 9}, nn::MaxPool2dOptions(2).stride(1).dilation(2))},
      {"MaxPool2d", "with indices",
       with_indices<nn::MaxPool2d>({2, 3, 8, 9}, nn::MaxPool2dOptions(2))},
      {"MaxPool3d", "", on_x<nn::MaxPool3d>({2, 3, 4, 5, 6}, nn::MaxPool3dOptions(2))},
      {"MaxPool3d", "with indices",
       with_indices<nn::MaxPool3d>({2, 3, 4, 5, 6}, nn::MaxPool3dOptions(2).ceil_mode(true))},
      {"AdaptiveMaxPool1d", "",
       on_x<nn::AdaptiveMaxPool1d>({2, 3, 9}, nn::AdaptiveMaxPool1dOptions(4))},
      {"AdaptiveMaxPool1d", "with indices",
       with_indices<nn::AdaptiveMaxPool1d>({2, 3, 9}, nn::AdaptiveMaxPool1dOptions(4))},
      {"AdaptiveMaxPool2d", "", on_x<nn::AdaptiveMaxPool2d>({2, 3, 8, 9}, Maybe2({3, 4}))},
      {"AdaptiveMaxPool2d", "with indices",
       with_indices<nn::AdaptiveMaxPool2d>({2, 3, 8, 9}, Maybe2({3, std::nullopt}))},
      {"AdaptiveMaxPool3d", "",
       on_x<nn::AdaptiveMaxPool3d>({2, 3, 4, 5, 6}, nn::AdaptiveMaxPool3dOptions(3))},
      {"AdaptiveAvgPool1d", "",
       on_x<nn::AdaptiveAvgPool1d>({2, 3, 9}, nn::AdaptiveAvgPool1dOptions(4))},
      {"AdaptiveAvgPool2d", "", on_x<nn::AdaptiveAvgPool2d>({2, 3, 8, 9}, MaybeAvg2({3, 4}))},
      {"AdaptiveAvgPool2d", "to one", on_x<nn::AdaptiveAvgPool2d>({2, 3, 8, 9}, MaybeAvg2(1))},
      {"AdaptiveAvgPool2d", "in one direction",
       on_x<nn::AdaptiveAvgPool2d>({2, 3, 8, 9}, MaybeAvg2({std::nullopt, 4}))},
      {"AdaptiveAvgPool3d", "", on_x<nn::AdaptiveAvgPool3d>({2, 3, 4, 5, 6}, MaybeAvg3({2, 3, 4}))},
      {"AdaptiveAvgPool3d", "to one", on_x<nn::AdaptiveAvgPool3d>({2, 3, 4, 5, 6}, MaybeAvg3(1))},
      {"MaxUnpool1d", "",
       undoing<nn::MaxUnpool1d, nn::MaxPool1d>({2, 3, 8}, nn::MaxUnpool1dOptions(2),
                                               nn::MaxPool1dOptions(2))},
      {"MaxUnpool2d", "",
       undoing<nn::MaxUnpool2d, nn::MaxPool2d>({2, 3, 8, 6}, nn::MaxUnpool2dOptions(2),
                                               nn::MaxPool2dOptions(2))},
      {"MaxUnpool3d", "",
       undoing<nn::MaxUnpool3d, nn::MaxPool3d>({2, 3, 4, 6, 8}, nn::MaxUnpool3dOptions(2),
                                               nn::MaxPool3dOptions(2))},
      {"FractionalMaxPool2d", "",
       on_x<nn::FractionalMaxPool2d>({2, 3, 8, 9},
                                     Fractional2(2).output_size(ExpandingArray<2>({4, 5})))},
      {"FractionalMaxPool2d", "by ratio",
       with_indices<nn::FractionalMaxPool2d>({2, 3, 8, 9},
                                             Fractional2(2).output_ratio(Ratio2(0.5)))},
      {"FractionalMaxPool3d", "",
       on_x<nn::FractionalMaxPool3d>({2, 3, 6, 7, 8},
                                     Fractional3(2).output_size(ExpandingArray<3>(3)))},
      {"FractionalMaxPool3d", "by ratio",
       with_indices<nn::FractionalMaxPool3d>({2, 3, 6, 7, 8},
                                             Fractional3(2).output_ratio(Ratio3(0.5)))},
      {"LPPool1d", "", on_x<nn::LPPool1d>({2, 3, 9}, nn::LPPool1dOptions(2, 3))},
      {"LPPool2d", "", on_x<nn::LPPool2d>({2, 3, 8, 9}, nn::LPPool2dOptions(2, {2, 3}))},
      {"LPPool2d", "rounding up",
       on_x<nn::LPPool2d>({2, 3, 8, 9}, nn::LPPool2dOptions(3, 2).stride(2).ceil_mode(true))},
      {"LPPool3d", "", on_x<nn::LPPool3d>({2, 3, 4, 5, 6}, nn::LPPool3dOptions(2, 2))},
  };
}

}  // namespace headroom::coverage

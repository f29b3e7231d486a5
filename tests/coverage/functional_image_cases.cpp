#include "programs.h"

namespace headroom::coverage {
namespace {

template <typename Function>
Program of_x(Sizes sizes, Function function) {
  return [=](Trial& t) -> Outputs { return function(t.x(sizes)); };
}

template <typename Function>
Program with_weight(Sizes sizes, Sizes weight, Function function) {
  return [=](Trial& t) -> Outputs {
    const Tensor x = t.x(sizes);
    return function(x, t.x(weight));
  };
}

Cases of_convolutions() {
  using X = const Tensor&;
  return {
      {"F::conv1d", "",
       with_weight({2, 4, 9}, {6, 4, 3}, [](X x, X w) { return F::conv1d(x, w); })},
      {"F::conv2d", "",
       with_weight({2, 4, 9, 9}, {6, 2, 3, 3},
                   [](X x, X w) { return F::conv2d(x, w, F::Conv2dFuncOptions().groups(2)); })},
      {"F::conv3d", "",
       with_weight({2, 4, 5, 6, 7}, {6, 4, 3, 3, 3}, [](X x, X w) { return F::conv3d(x, w); })},
      {"F::conv_transpose1d", "",
       with_weight({2, 4, 9}, {4, 6, 3}, [](X x, X w) { return F::conv_transpose1d(x, w); })},
      {"F::conv_transpose2d", "",
       with_weight({2, 4, 5, 6}, {4, 6, 3, 3},
                   [](X x, X w) {
                     return F::conv_transpose2d(x, w, F::ConvTranspose2dFuncOptions().stride(2));
                   })},
      {"F::conv_transpose3d", "",
       with_weight({2, 4, 3, 4, 5}, {4, 6, 3, 3, 3},
                   [](X x, X w) { return F::conv_transpose3d(x, w); })},
      {"F::fold", "",
       of_x({2, 12, 12},
            [](X x) {
              return F::fold(x, F::FoldFuncOptions({4, 5}, {2, 2}));
            })},
      {"F::unfold", "",
       of_x({2, 3, 6, 7},
            [](X x) {
              return F::unfold(x, F::UnfoldFuncOptions({2, 3}));
            })},
      {"F::pixel_shuffle", "", of_x({2, 8, 3, 5}, [](X x) { return F::pixel_shuffle(x, 2); })},
      {"F::pixel_unshuffle", "", of_x({2, 3, 4, 6}, [](X x) { return F::pixel_unshuffle(x, 2); })},
      {"F::pad", "",
       of_x({2, 3, 6},
            [](X x) {
              return F::pad(x, F::PadFuncOptions({1, 2}));
            })},
      {"F::pad", "reflecting",
       of_x({2, 3, 6},
            [](X x) {
              return F::pad(x, F::PadFuncOptions({1, 2}).mode(torch::kReflect));
            })},
      {"F::pad", "replicating",
       of_x({2, 3, 6, 7},
            [](X x) {
              return F::pad(x, F::PadFuncOptions({1, 2, 0, 1}).mode(torch::kReplicate));
            })},
      {"F::pad", "circular",
       of_x({2, 3, 6, 7},
            [](X x) {
              return F::pad(x, F::PadFuncOptions({1, 2, 0, 1}).mode(torch::kCircular));
            })},
  };
}

Cases of_pools() {
  using X = const Tensor&;
  return {
      {"F::avg_pool1d", "",
       of_x({2, 3, 9}, [](X x) { return F::avg_pool1d(x, F::AvgPool1dFuncOptions(3)); })},
      {"F::avg_pool2d", "",
       of_x({2, 3, 8, 9}, [](X x) { return F::avg_pool2d(x, F::AvgPool2dFuncOptions(3)); })},
      {"F::avg_pool3d", "",
       of_x({2, 3, 4, 5, 6}, [](X x) { return F::avg_pool3d(x, F::AvgPool3dFuncOptions(2)); })},
      {"F::max_pool1d", "",
       of_x({2, 3, 9}, [](X x) { return F::max_pool1d(x, F::MaxPool1dFuncOptions(3)); })},
      {"F::max_pool2d", "",
       of_x({2, 3, 8, 9}, [](X x) { return F::max_pool2d(x, F::MaxPool2dFuncOptions(3)); })},
      {"F::max_pool3d", "",
       of_x({2, 3, 4, 5, 6}, [](X x) { return F::max_pool3d(x, F::MaxPool3dFuncOptions(2)); })},
      {"F::max_pool1d_with_indices", "",
       of_x({2, 3, 9},
            [](X x) { return F::max_pool1d_with_indices(x, F::MaxPool1dFuncOptions(3)); })},
      {"F::max_pool2d_with_indices", "",
       of_x({2, 3, 8, 9},
            [](X x) { return F::max_pool2d_with_indices(x, F::MaxPool2dFuncOptions(3)); })},
      {"F::max_pool3d_with_indices", "",
       of_x({2, 3, 4, 5, 6},
            [](X x) { return F::max_pool3d_with_indices(x, F::MaxPool3dFuncOptions(2)); })},
      {"F::adaptive_max_pool1d", "",
       of_x({2, 3, 9},
            [](X x) { return F::adaptive_max_pool1d(x, F::AdaptiveMaxPool1dFuncOptions(4)); })},
      {"F::adaptive_max_pool2d", "",
       of_x({2, 3, 8, 9},
            [](X x) { return F::adaptive_max_pool2d(x, F::AdaptiveMaxPool2dFuncOptions(4)); })},
      {"F::adaptive_max_pool3d", "",
       of_x({2, 3, 4, 5, 6},
            [](X x) { return F::adaptive_max_pool3d(x, F::AdaptiveMaxPool3dFuncOptions(3)); })},
      {"F::adaptive_max_pool1d_with_indices", "",
       of_x({2, 3, 9},
            [](X x) {
              return F::adaptive_max_pool1d_with_indices(x, F::AdaptiveMaxPool1dFuncOptions(4));
            })},
      {"F::adaptive_max_pool2d_with_indices", "",
       of_x({2, 3, 8, 9},
            [](X x) {
              return F::adaptive_max_pool2d_with_indices(x, F::AdaptiveMaxPool2dFuncOptions(4));
            })},
      {"F::adaptive_max_pool3d_with_indices", "",
       of_x({2, 3, 4, 5, 6},
            [](X x) {
              return F::adaptive_max_pool3d_with_indices(x, F::AdaptiveMaxPool3dFuncOptions(3));
            })},
      {"F::adaptive_avg_pool1d", "",
       of_x({2, 3, 9},
            [](X x) { return F::adaptive_avg_pool1d(x, F::AdaptiveAvgPool1dFuncOptions(4)); })},
      {"F::adaptive_avg_pool2d", "",
       of_x({2, 3, 8, 9},
            [](X x) { return F::adaptive_avg_pool2d(x, F::AdaptiveAvgPool2dFuncOptions(4)); })},
      {"F::adaptive_avg_pool3d", "",
       of_x({2, 3, 4, 5, 6},
            [](X x) { return F::adaptive_avg_pool3d(x, F::AdaptiveAvgPool3dFuncOptions(3)); })},
      {"F::max_unpool1d", "",
       of_x({2, 3, 8},
            [](X x) {
              const auto [pooled, indices] =
                  F::max_pool1d_with_indices(x, F::MaxPool1dFuncOptions(2));
              return F::max_unpool1d(pooled, indices, F::MaxUnpool1dFuncOptions(2));
            })},
      {"F::max_unpool2d", "",
       of_x({2, 3, 9, 7},
            [](X x) {
              const auto [pooled, indices] =
                  F::max_pool2d_with_indices(x, F::MaxPool2dFuncOptions(2));
              return F::max_unpool2d(pooled, indices,
                                     F::MaxUnpool2dFuncOptions(2).output_size(Sizes{2, 3, 9, 7}));
            })},
      {"F::max_unpool3d", "",
       of_x({2, 3, 4, 6, 8},
            [](X x) {
              const auto [pooled, indices] =
                  F::max_pool3d_with_indices(x, F::MaxPool3dFuncOptions(2));
              return F::max_unpool3d(pooled, indices, F::MaxUnpool3dFuncOptions(2));
            })},
      {"F::fractional_max_pool2d", "",
       of_x({2, 3, 8, 9},
            [](X x) {
              return F::fractional_max_pool2d(x,
                                              F::FractionalMaxPool2dFuncOptions(2).output_size(4));
            })},
      {"F::fractional_max_pool2d_with_indices", "",
       of_x({2, 3, 8, 9},
            [](X x) {
              return F::fractional_max_pool2d_with_indices(
                  x, F::FractionalMaxPool2dFuncOptions(2).output_size(4));
            })},
      {"F::fractional_max_pool3d", "",
       of_x({2, 3, 6, 7, 8},
            [](X x) {
              return F::fractional_max_pool3d(x,
                                              F::FractionalMaxPool3dFuncOptions(2).output_size(3));
            })},
      {"F::fractional_max_pool3d_with_indices", "",
       of_x({2, 3, 6, 7, 8},
            [](X x) {
              return F::fractional_max_pool3d_with_indices(
                  x, F::FractionalMaxPool3dFuncOptions(2).output_size(3));
            })},
      {"F::lp_pool1d", "",
       of_x({2, 3, 9}, [](X x) { return F::lp_pool1d(x, F::LPPool1dFuncOptions(2, 3)); })},
      {"F::lp_pool2d", "",
       of_x({2, 3, 8, 9}, [](X x) { return F::lp_pool2d(x, F::LPPool2dFuncOptions(2, 3)); })},
      {"F::lp_pool3d", "",
       of_x({2, 3, 4, 5, 6}, [](X x) { return F::lp_pool3d(x, F::LPPool3dFuncOptions(2, 2)); })},
  };
}

template <typename Mode>
Program scaled(Sizes sizes, Mode mode) {
  return [=](Trial& t) -> Outputs {
    return F::interpolate(t.x(sizes), F::InterpolateFuncOptions()
                                          .scale_factor(std::vector<double>(sizes.size() - 2, 1.5))
                                          .recompute_scale_factor(true)
                                          .mode(mode));
  };
}

template <typename Mode>
Program smaller(Mode mode) {
  return [=](Trial& t) -> Outputs {
    return F::interpolate(t.x({2, 3, 8, 9}), F::InterpolateFuncOptions()
                                                 .size(Sizes{4, 3})
                                                 .mode(mode)
                                                 .align_corners(false)
                                                 .antialias(true));
  };
}

template <typename Mode, typename Padding>
Program sampled(Sizes sizes, Sizes grid, Mode mode, Padding padding, bool aligned) {
  return [=](Trial& t) -> Outputs {
    const Tensor x = t.x(sizes);
    return F::grid_sample(
        x, t.x(grid),
        F::GridSampleFuncOptions().mode(mode).padding_mode(padding).align_corners(aligned));
  };
}

Cases of_samples() {
  return {
      {"F::interpolate", "", scaled({2, 3, 4, 6}, torch::kNearest)},
      {"F::interpolate", "exactly nearest", scaled({2, 3, 4, 6}, torch::kNearestExact)},
      {"F::interpolate", "exactly nearest of a sequence", scaled({2, 3, 6}, torch::kNearestExact)},
      {"F::interpolate", "exactly nearest of a volume",
       scaled({2, 3, 2, 4, 6}, torch::kNearestExact)},
      {"F::interpolate", "linear", scaled({2, 3, 6}, torch::kLinear)},
      {"F::interpolate", "bilinear", scaled({2, 3, 4, 6}, torch::kBilinear)},
      {"F::interpolate", "bicubic", scaled({2, 3, 4, 6}, torch::kBicubic)},
      {"F::interpolate", "trilinear", scaled({2, 3, 2, 4, 6}, torch::kTrilinear)},
      {"F::interpolate", "by area", scaled({2, 3, 4, 6}, torch::kArea)},
      {"F::interpolate", "antialiased", smaller(torch::kBilinear)},
      {"F::interpolate", "antialiased bicubic", smaller(torch::kBicubic)},
      {"F::grid_sample", "",
       sampled({2, 3, 4, 5}, {2, 6, 7, 2}, torch::kBilinear, torch::kZeros, false)},
      {"F::grid_sample", "nearest",
       sampled({2, 3, 4, 5}, {2, 6, 7, 2}, torch::kNearest, torch::kBorder, true)},
      {"F::grid_sample", "bicubic",
       sampled({2, 3, 4, 5}, {2, 6, 7, 2}, torch::kBicubic, torch::kReflection, false)},
      {"F::grid_sample", "of volumes",
       sampled({2, 3, 3, 4, 5}, {2, 4, 6, 7, 3}, torch::kBilinear, torch::kZeros, true)},
      {"F::affine_grid", "",
       [](Trial& t) -> Outputs {
         return F::affine_grid(t.x({2, 2, 3}), {2, 3, 4, 5}, false);
       }},
      {"F::affine_grid", "of volumes",
       [](Trial& t) -> Outputs {
         return F::affine_grid(t.x({2, 3, 4}), {2, 3, 3, 4, 5}, true);
       }},
  };
}

}  // namespace

Cases functional_image_cases() {
  Cases all = of_convolutions();
  for (Case& one : of_pools()) all.push_back(std::move(one));
  for (Case& one : of_samples()) all.push_back(std::move(one));
  return all;
}

}  // namespace headroom::coverage

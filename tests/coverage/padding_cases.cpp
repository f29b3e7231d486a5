#include "programs.h"

namespace headroom::coverage {
namespace {

using Scale = std::vector<double>;

template <typename Mode>
nn::UpsampleOptions twice(std::size_t dimensions, Mode mode) {
  return nn::UpsampleOptions().scale_factor(Scale(dimensions, 2.0)).mode(mode);
}

}  // namespace

Cases padding_cases() {
  return {
      {"ReflectionPad1d", "",
       on_x<nn::ReflectionPad1d>({2, 3, 7}, nn::ReflectionPad1dOptions({2, 3}))},
      {"ReflectionPad2d", "",
       on_x<nn::ReflectionPad2d>({2, 3, 6, 7}, nn::ReflectionPad2dOptions({1, 2, 3, 0}))},
      {"ReflectionPad2d", "of one image",
       on_x<nn::ReflectionPad2d>({3, 6, 7}, nn::ReflectionPad2dOptions(1))},
      {"ReflectionPad3d", "",
       on_x<nn::ReflectionPad3d>({2, 3, 4, 5, 6}, nn::ReflectionPad3dOptions(1))},
      {"ReplicationPad1d", "",
       on_x<nn::ReplicationPad1d>({2, 3, 7}, nn::ReplicationPad1dOptions({2, 3}))},
      {"ReplicationPad2d", "",
       on_x<nn::ReplicationPad2d>({2, 3, 6, 7}, nn::ReplicationPad2dOptions({1, 2, 3, 0}))},
      {"ReplicationPad3d", "",
       on_x<nn::ReplicationPad3d>({2, 3, 4, 5, 6}, nn::ReplicationPad3dOptions(1))},
      {"ZeroPad1d", "", on_x<nn::ZeroPad1d>({2, 3, 7}, nn::ZeroPad1dOptions({2, 3}))},
      {"ZeroPad2d", "", on_x<nn::ZeroPad2d>({2, 3, 6, 7}, nn::ZeroPad2dOptions({1, 2, 3, 0}))},
      {"ZeroPad3d", "", on_x<nn::ZeroPad3d>({2, 3, 4, 5, 6}, nn::ZeroPad3dOptions(1))},
      {"ConstantPad1d", "",
       on_x<nn::ConstantPad1d>({2, 3, 7}, nn::ConstantPad1dOptions({2, 3}, 3.5))},
      {"ConstantPad2d", "",
       on_x<nn::ConstantPad2d>({2, 3, 6, 7}, nn::ConstantPad2dOptions({1, -1, 3, 0}, 3.5))},
      {"ConstantPad3d", "",
       on_x<nn::ConstantPad3d>({2, 3, 4, 5, 6}, nn::ConstantPad3dOptions(1, 3.5))},
      {"Upsample", "", on_x<nn::Upsample>({2, 3, 4, 5}, twice(2, torch::kNearest))},
      {"Upsample", "of a sequence", on_x<nn::Upsample>({2, 3, 5}, twice(1, torch::kNearest))},
      {"Upsample", "of a volume", on_x<nn::Upsample>({2, 3, 2, 4, 5}, twice(3, torch::kNearest))},
      {"Upsample", "linear", on_x<nn::Upsample>({2, 3, 5}, twice(1, torch::kLinear))},
      {"Upsample", "bilinear", on_x<nn::Upsample>({2, 3, 4, 5}, twice(2, torch::kBilinear))},
      {"Upsample", "bilinear with aligned corners",
       on_x<nn::Upsample>({2, 3, 4, 5}, twice(2, torch::kBilinear).align_corners(true))},
      {"Upsample", "bicubic", on_x<nn::Upsample>({2, 3, 4, 5}, twice(2, torch::kBicubic))},
      {"Upsample", "trilinear", on_x<nn::Upsample>({2, 3, 2, 4, 5}, twice(3, torch::kTrilinear))},
      {"Upsample", "to a size",
       on_x<nn::Upsample>({2, 3, 4, 5},
                          nn::UpsampleOptions().size(Sizes{7, 3}).mode(torch::kBilinear))},
  };
}

}  // namespace headroom::coverage

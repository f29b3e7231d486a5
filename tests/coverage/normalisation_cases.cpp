#include "programs.h"

namespace headroom::coverage {

Cases normalisation_cases() {
  using Batch = nn::BatchNormOptions;
  using Instance = nn::InstanceNormOptions;
  using Layer = nn::LayerNormOptions;
  using Group = nn::GroupNormOptions;
  return {
      {"BatchNorm1d", "", on_x<nn::BatchNorm1d>({4, 3, 5}, Batch(3))},
      {"BatchNorm1d", "of rows", on_x<nn::BatchNorm1d>({6, 3}, Batch(3))},
      {"BatchNorm1d", "evaluating", evaluating<nn::BatchNorm1d>({4, 3, 5}, Batch(3))},
      {"BatchNorm2d", "", on_x<nn::BatchNorm2d>({4, 3, 5, 6}, Batch(3))},
      {"BatchNorm2d", "of a batch of one", on_x<nn::BatchNorm2d>({1, 3, 5, 7}, Batch(3))},
      {"BatchNorm2d", "evaluating", evaluating<nn::BatchNorm2d>({4, 3, 5, 6}, Batch(3))},
      {"BatchNorm2d", "without weights",
       on_x<nn::BatchNorm2d>({4, 3, 5, 6}, Batch(3).affine(false))},
      {"BatchNorm2d", "without running statistics",
       on_x<nn::BatchNorm2d>({4, 3, 5, 6}, Batch(3).track_running_stats(false))},
      {"BatchNorm2d", "evaluating without running statistics",
       evaluating<nn::BatchNorm2d>({4, 3, 5, 6}, Batch(3).track_running_stats(false))},
      {"BatchNorm2d", "without momentum",
       on_x<nn::BatchNorm2d>({4, 3, 5, 6}, Batch(3).momentum(std::nullopt))},
      {"BatchNorm3d", "", on_x<nn::BatchNorm3d>({4, 3, 2, 5, 6}, Batch(3))},
      {"BatchNorm3d", "evaluating", evaluating<nn::BatchNorm3d>({4, 3, 2, 5, 6}, Batch(3))},
      {"InstanceNorm1d", "", on_x<nn::InstanceNorm1d>({4, 3, 5}, Instance(3))},
      {"InstanceNorm2d", "", on_x<nn::InstanceNorm2d>({4, 3, 5, 6}, Instance(3))},
      {"InstanceNorm2d", "with weights",
       on_x<nn::InstanceNorm2d>({4, 3, 5, 6}, Instance(3).affine(true))},
      {"InstanceNorm2d", "with running statistics",
       on_x<nn::InstanceNorm2d>({4, 3, 5, 6}, Instance(3).affine(true).track_running_stats(true))},
      {"InstanceNorm2d", "evaluating",
       evaluating<nn::InstanceNorm2d>({4, 3, 5, 6}, Instance(3).track_running_stats(true))},
      {"InstanceNorm3d", "", on_x<nn::InstanceNorm3d>({2, 3, 2, 5, 6}, Instance(3))},
      {"LayerNorm", "", on_x<nn::LayerNorm>({4, 3, 8}, Layer({8}))},
      {"LayerNorm", "over two dimensions", on_x<nn::LayerNorm>({4, 3, 8}, Layer({3, 8}))},
      {"LayerNorm", "without weights",
       on_x<nn::LayerNorm>({4, 3, 8}, Layer({8}).elementwise_affine(false))},
      {"LayerNorm", "of nothing", on_x<nn::LayerNorm>({0, 3, 8}, Layer({8}))},
      {"LayerNorm", "of an image", on_x<nn::LayerNorm>({2, 3, 4, 8}, Layer({8}))},
      {"LocalResponseNorm", "",
       on_x<nn::LocalResponseNorm>({2, 6, 4, 5}, nn::LocalResponseNormOptions(3))},
      {"LocalResponseNorm", "of a sequence",
       on_x<nn::LocalResponseNorm>({2, 6, 4}, nn::LocalResponseNormOptions(2))},
      {"CrossMapLRN2d", "", on_x<nn::CrossMapLRN2d>({2, 6, 4, 5}, nn::CrossMapLRN2dOptions(3))},
      {"GroupNorm", "", on_x<nn::GroupNorm>({2, 6, 4, 5}, Group(2, 6))},
      {"GroupNorm", "of a sequence", on_x<nn::GroupNorm>({2, 6, 5}, Group(3, 6))},
      {"GroupNorm", "of rows", on_x<nn::GroupNorm>({3, 6}, Group(3, 6))},
      {"GroupNorm", "without weights",
       on_x<nn::GroupNorm>({2, 6, 4, 5}, Group(2, 6).affine(false))},
  };
}

}  // namespace headroom::coverage

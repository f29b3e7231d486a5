// Layers: convolutions, norms, pooling, padding, sampling.
#include "tests/sim/nn_case.h"

namespace headroom::sim {
namespace {

using at::Tensor;
const Types kHalves = {at::kBFloat16, at::kHalf};
const Types kFloats = {at::kFloat};
constexpr bool kOwnStrides = true;
constexpr bool kOtherSums = false;
using S = const std::vector<Tensor>&;
using Ints = std::vector<std::int64_t>;

std::vector<Case> convolutions() {
  return {
      {"conv1d", normals({{2, 4, 9}, {6, 4, 3}, {6}}),
       [](S x) -> Tensors { return {at::conv1d(x[0], x[1], x[2], 2, 1)}; }},
      {"conv1d_same", normals({{2, 4, 9}, {6, 4, 3}}),
       [](S x) -> Tensors { return {at::conv1d(x[0], x[1], {}, 1, "same", 2)}; }, kWide},
      {"conv2d", normals({{2, 4, 7, 6}, {6, 4, 3, 3}, {6}}),
       [](S x) -> Tensors { return {at::conv2d(x[0], x[1], x[2], 1, 1)}; }},
      {"conv2d_unbatched", normals({{4, 7, 6}, {6, 4, 3, 3}}),
       [](S x) -> Tensors { return {at::conv2d(x[0], x[1], {}, 2)}; }},
      {"conv2d_groups_dilation", normals({{2, 4, 9, 8}, {6, 2, 3, 2}, {6}}),
       [](S x) -> Tensors {
         return {at::conv2d(x[0], x[1], x[2], 1, 2, Ints{2, 1}, 2)};
       }},
      {"conv2d_depthwise", normals({{2, 4, 9, 8}, {8, 1, 3, 3}, {8}}),
       [](S x) -> Tensors { return {at::conv2d(x[0], x[1], x[2], 1, 1, 1, 4)}; }},
      {"conv2d_channels_last", channels_last({{2, 4, 7, 6}, {6, 4, 3, 3}, {6}}),
       [](S x) -> Tensors { return {at::conv2d(x[0], x[1], x[2], 1, 1)}; }, kFloats},
      {"conv2d_channels_last_double",
       channels_last({{2, 4, 7, 6}, {6, 4, 3, 3}, {6}}),
       [](S x) -> Tensors { return {at::conv2d(x[0], x[1], x[2], 1, 1)}; },
       {at::kDouble},
       kOwnStrides},
      {"conv3d", normals({{2, 3, 5, 6, 4}, {4, 3, 3, 2, 2}, {4}}),
       [](S x) -> Tensors { return {at::conv3d(x[0], x[1], x[2], 1, 1)}; }},
      {"conv_transpose1d", normals({{2, 4, 9}, {4, 3, 3}, {3}}),
       [](S x) -> Tensors { return {at::conv_transpose1d(x[0], x[1], x[2], 2, 1, 1)}; }},
      {"conv_transpose2d", normals({{2, 4, 5, 6}, {4, 3, 3, 3}, {6}}),
       [](S x) -> Tensors { return {at::conv_transpose2d(x[0], x[1], x[2], 2, 1, 1, 2)}; }},
      {"conv_transpose3d", normals({{1, 2, 3, 4, 5}, {2, 3, 2, 2, 2}, {3}}),
       [](S x) -> Tensors { return {at::conv_transpose3d(x[0], x[1], x[2], 2)}; }},
      {"unfold", normals({{2, 3, 6, 7}}),
       [](S x) -> Tensors {
         return {at::im2col(x[0], {2, 3}, {1, 1}, {1, 0}, {2, 1})};
       },
       kWide},
      {"fold", normals({{2, 12, 42}}),
       [](S x) -> Tensors {
         return {at::col2im(x[0], {7, 8}, {2, 2}, {1, 1}, {0, 0}, {1, 1})};
       },
       kWide},
      {"fold_of_one", normals({{12, 42}}),
       [](S x) -> Tensors {
         return {at::col2im(x[0], {7, 8}, {2, 2}, {1, 1}, {0, 0}, {1, 1})};
       },
       kWide},
  };
}

Tensors with_running_statistics(S x, bool training) {
  Tensor mean = at::zeros(x[1].sizes(), x[1].options()), var = at::ones_like(mean);
  Tensor out = at::batch_norm(x[0], x[1], x[2], mean, var, training, 0.1, 1e-5, true);
  return {out, mean, var};
}

// Input of half precision, parameters in float.
std::function<Tensors(at::TensorOptions)> mixed(Shapes shapes) {
  return [shapes](at::TensorOptions options) {
    Tensors all = {normal(shapes[0], options)};
    for (std::size_t i = 1; i < shapes.size(); ++i) all.push_back(normal(shapes[i], at::kFloat));
    return all;
  };
}

std::vector<Case> normalisations() {
  const Shapes images = {{4, 6, 5, 3}, {6}, {6}};
  const auto layer_norm = [](S x) -> Tensors {
    return {at::layer_norm(x[0], x[1].sizes(), x[1], x[2])};
  };
  const auto group_norm = [](S x) -> Tensors { return {at::group_norm(x[0], 3, x[1], x[2])}; };
  return {
      {"layer_norm", normals({{3, 5, 16}, {16}, {16}}), layer_norm},
      {"layer_norm_of_two", normals({{3, 5, 16}, {5, 16}, {5, 16}}), layer_norm},
      {"layer_norm_mixed", mixed({{3, 5, 16}, {16}, {16}}), layer_norm, kHalves},
      {"layer_norm_plain", normals({{3, 16}}),
       [](S x) -> Tensors { return {at::layer_norm(x[0], 16)}; }},
      {"rms_norm", normals({{3, 5, 16}, {16}}),
       [](S x) -> Tensors { return {at::rms_norm(x[0], 16, x[1])}; }},
      {"rms_norm_plain", normals({{3, 5, 16}}),
       [](S x) -> Tensors {
         return {at::rms_norm(x[0], {5, 16}, {}, 1e-3)};
       }},
      {"group_norm", normals(images), group_norm},
      {"group_norm_mixed", mixed(images), group_norm, kHalves},
      {"group_norm_of_vectors", normals({{4, 6}, {6}, {6}}), group_norm},
      {"group_norm_plain", normals({{4, 6, 5}}),
       [](S x) -> Tensors { return {at::group_norm(x[0], 2)}; }},
      {"group_norm_channels_last", channels_last(images), group_norm, kWide, kOwnStrides,
       kOtherSums},
      {"batch_norm", normals(images), [](S x) { return with_running_statistics(x, true); }},
      {"batch_norm_mixed", mixed(images), [](S x) { return with_running_statistics(x, true); },
       kHalves},
      {"batch_norm_of_vectors", normals({{4, 6}, {6}, {6}}),
       [](S x) { return with_running_statistics(x, true); }},
      {"batch_norm_channels_last", channels_last(images),
       [](S x) { return with_running_statistics(x, true); }},
      {"batch_norm_in_evaluation", normals(images),
       [](S x) { return with_running_statistics(x, false); }},
      {"batch_norm_of_vectors_in_evaluation", mixed({{4, 6}, {6}, {6}}),
       [](S x) { return with_running_statistics(x, false); }, kHalves},
      {"batch_norm_plain", normals({{4, 6, 5, 2, 3}}),
       [](S x) -> Tensors {
         return {at::batch_norm(x[0], {}, {}, {}, {}, true, 0.1, 1e-5, true)};
       }},
      {"batch_norm_legit", normals(images),
       [](S x) -> Tensors {
         return first_of(at::_native_batch_norm_legit(x[0], x[1], x[2], true, 0.1, 1e-5));
       }},
      {"batch_norm_with_update", normals(images),
       [](S x) -> Tensors {
         Tensor mean = at::zeros({6}, x[1].options()), var = at::ones_like(mean);
         return {std::get<0>(at::_batch_norm_with_update(x[0], x[1], x[2], mean, var, 0.1, 1e-5))};
       },
       kWide},
      {"instance_norm", normals(images),
       [](S x) -> Tensors {
         return {at::instance_norm(x[0], x[1], x[2], {}, {}, true, 0.1, 1e-5, true)};
       }},
      {"local_response_norm", normals({{2, 6, 4, 4}}),
       [](S x) -> Tensors {
         namespace F = torch::nn::functional;
         return {F::local_response_norm(x[0], F::LocalResponseNormFuncOptions(3))};
       },
       kWide},
  };
}

std::vector<Case> poolings() {
  namespace F = torch::nn::functional;
  const auto max_pool_3d = [](S x) { return both(at::max_pool3d_with_indices(x[0], 2, 2, 1)); };
  const auto average_2d = [](S x) -> Tensors { return {at::adaptive_avg_pool2d(x[0], {3, 2})}; };
  const auto average_3d = [](S x) -> Tensors { return {at::adaptive_avg_pool3d(x[0], {2, 3, 2})}; };
  const auto maximum_2d = [](S x) { return both(at::max_pool2d_with_indices(x[0], 3, 2, 1)); };
  const auto mean_2d = [](S x) -> Tensors { return {at::avg_pool2d(x[0], 3, 2, 1)}; };
  return {
      {"max_pool1d", normals({{2, 3, 9}}),
       [](S x) -> Tensors { return {at::max_pool1d(x[0], 3, 2, 1)}; }},
      {"max_pool2d", normals({{2, 3, 9, 8}}), maximum_2d},
      {"max_pool2d_channels_last", channels_last({{2, 3, 9, 8}}), maximum_2d},
      {"max_pool3d", normals({{2, 3, 5, 6, 7}}), max_pool_3d},
      {"max_pool3d_unbatched", normals({{3, 5, 6, 7}}), max_pool_3d},
      {"max_pool3d_channels_last", channels_last({{2, 3, 5, 6, 7}}), max_pool_3d, kWide,
       kOwnStrides},
      {"max_pool3d_dilated_ceil", normals({{2, 3, 7, 9, 8}}),
       [](S x) { return both(at::max_pool3d_with_indices(x[0], 3, 2, 1, 2, true)); }, kWide},
      {"avg_pool1d", normals({{2, 3, 9}}),
       [](S x) -> Tensors { return {at::avg_pool1d(x[0], 3, 2)}; }, kWide},
      {"avg_pool2d", normals({{2, 3, 9, 8}}), mean_2d},
      {"avg_pool2d_channels_last", channels_last({{2, 3, 9, 8}}), mean_2d},
      {"avg_pool3d", normals({{2, 3, 5, 6, 7}}),
       [](S x) -> Tensors { return {at::avg_pool3d(x[0], 2)}; }, kWide},
      {"lp_pool1d", normals({{2, 3, 9}}),
       [](S x) -> Tensors { return {F::lp_pool1d(x[0], F::LPPool1dFuncOptions(2, 3))}; }, kWide},
      {"lp_pool2d", normals({{2, 3, 9, 8}}),
       [](S x) -> Tensors { return {F::lp_pool2d(x[0], F::LPPool2dFuncOptions(2, 3))}; }, kWide},
      {"adaptive_avg_pool1d", normals({{2, 3, 9}}),
       [](S x) -> Tensors { return {at::adaptive_avg_pool1d(x[0], 4)}; }, kWide},
      {"adaptive_avg_pool2d", normals({{2, 3, 7, 5}}), average_2d},
      {"adaptive_avg_pool2d_unbatched", normals({{3, 7, 5}}), average_2d},
      {"adaptive_avg_pool2d_channels_last", channels_last({{2, 3, 7, 5}}), average_2d},
      {"adaptive_avg_pool2d_to_one", normals({{2, 3, 7, 5}}),
       [](S x) -> Tensors {
         return {at::adaptive_avg_pool2d(x[0], {1, 1})};
       }},
      {"adaptive_avg_pool3d", normals({{2, 3, 4, 7, 5}}), average_3d, kWide},
      {"adaptive_avg_pool3d_unbatched", normals({{3, 4, 7, 5}}), average_3d, kWide},
      {"adaptive_max_pool1d", normals({{2, 3, 9}}),
       [](S x) { return both(at::adaptive_max_pool1d(x[0], 4)); }},
      {"adaptive_max_pool2d", normals({{2, 3, 7, 5}}),
       [](S x) {
         return both(at::adaptive_max_pool2d(x[0], {3, 2}));
       }},
      {"adaptive_max_pool3d", normals({{2, 3, 4, 7, 5}}),
       [](S x) {
         return both(at::adaptive_max_pool3d(x[0], {2, 3, 2}));
       },
       kWide},
      {"fractional_max_pool2d", normals({{2, 3, 9, 8}}),
       [](S x) {
         const Tensor samples = at::rand({2, 3, 2}, x[0].options());
         return both(at::fractional_max_pool2d(x[0], {2, 2}, {5, 4}, samples));
       },
       kWide},
      {"fractional_max_pool3d", normals({{2, 3, 9, 8, 7}}),
       [](S x) {
         const Tensor samples = at::rand({2, 3, 3}, x[0].options());
         return both(at::fractional_max_pool3d(x[0], {2, 2, 2}, {5, 4, 3}, samples));
       },
       kWide},
      {"max_unpool2d", normals({{2, 3, 8, 6}}),
       [](S x) -> Tensors {
         const auto [out, indices] = at::max_pool2d_with_indices(x[0], 2);
         return {at::max_unpool2d(out, indices, {8, 6})};
       },
       kWide},
      {"max_unpool3d", normals({{2, 3, 4, 8, 6}}),
       [](S x) -> Tensors {
         const auto [out, indices] = at::max_pool3d_with_indices(x[0], 2);
         return {at::max_unpool3d(out, indices, {4, 8, 6}, {2, 2, 2}, {0, 0, 0})};
       },
       kWide},
  };
}

std::vector<Case> paddings_and_samplings() {
  const auto pad = [](Ints padding, const char* mode) {
    return [padding, mode](S x) -> Tensors { return {at::pad(x[0], padding, mode)}; };
  };
  const auto grid = [](std::int64_t mode, std::int64_t padding) {
    return [mode, padding](S x) -> Tensors {
      return {at::grid_sampler(x[0], x[1], mode, padding, false)};
    };
  };
  const Shapes image = {{2, 3, 5, 6}}, volume = {{2, 3, 4, 5, 6}};
  return {
      {"reflection_pad1d", normals({{2, 3, 6}}), pad({1, 2}, "reflect"), kWide},
      {"reflection_pad2d", normals(image), pad({1, 2, 0, 3}, "reflect"), kWide},
      {"reflection_pad2d_unbatched", normals({{3, 5, 6}}), pad({1, 2, 0, 3}, "reflect"), kWide},
      {"reflection_pad2d_channels_last", channels_last(image), pad({1, 2, 0, 3}, "reflect"), kWide,
       kOwnStrides},
      {"reflection_pad3d", normals(volume), pad({1, 2, 0, 3, 1, 1}, "reflect"), kWide},
      {"replication_pad1d", normals({{2, 3, 6}}), pad({1, 2}, "replicate"), kWide},
      {"replication_pad2d", normals(image), pad({1, 2, 0, 3}, "replicate"), kWide},
      {"replication_pad3d", normals(volume), pad({1, 2, 0, 3, 1, 1}, "replicate"), kWide},
      {"circular_pad", normals(image), pad({1, 2, 0, 3}, "circular"), kWide},
      {"constant_pad", normals(image), pad({1, 2, -1, 3}, "constant")},
      {"nearest1d", normals({{2, 3, 6}}),
       [](S x) -> Tensors { return {at::upsample_nearest1d(x[0], 11)}; }, kWide},
      {"nearest2d", normals(image),
       [](S x) -> Tensors {
         return {at::upsample_nearest2d(x[0], {7, 9})};
       }},
      {"nearest2d_channels_last", channels_last(image),
       [](S x) -> Tensors {
         return {at::upsample_nearest2d(x[0], {7, 9})};
       }},
      {"nearest_exact2d", normals(image),
       [](S x) -> Tensors {
         return {at::_upsample_nearest_exact2d(x[0], {7, 9})};
       }},
      {"nearest3d", normals(volume),
       [](S x) -> Tensors {
         return {at::upsample_nearest3d(x[0], {7, 9, 8})};
       },
       kWide},
      {"linear1d", normals({{2, 3, 6}}),
       [](S x) -> Tensors { return {at::upsample_linear1d(x[0], 11, true)}; }, kWide},
      {"bilinear2d", normals(image),
       [](S x) -> Tensors {
         return {at::upsample_bilinear2d(x[0], {7, 9}, false)};
       }},
      {"bilinear2d_aa", normals(image),
       [](S x) -> Tensors {
         return {at::_upsample_bilinear2d_aa(x[0], {3, 4}, false)};
       },
       kWide},
      {"bicubic2d", normals(image),
       [](S x) -> Tensors {
         return {at::upsample_bicubic2d(x[0], {7, 9}, false)};
       },
       kWide},
      {"bicubic2d_aa", normals(image),
       [](S x) -> Tensors {
         return {at::_upsample_bicubic2d_aa(x[0], {3, 4}, false)};
       },
       kWide},
      {"trilinear3d", normals(volume),
       [](S x) -> Tensors {
         return {at::upsample_trilinear3d(x[0], {7, 9, 8}, true)};
       },
       kWide},
      {"pixel_shuffle", normals({{2, 12, 3, 4}}),
       [](S x) -> Tensors { return {at::pixel_shuffle(x[0], 2)}; }},
      {"pixel_unshuffle", normals({{2, 3, 4, 6}}),
       [](S x) -> Tensors { return {at::pixel_unshuffle(x[0], 2)}; }},
      {"channel_shuffle", normals({{2, 6, 4, 5}}),
       [](S x) -> Tensors { return {at::channel_shuffle(x[0].detach(), 2)}; }},
      {"grid_sampler_2d", normals({{2, 3, 5, 6}, {2, 4, 3, 2}}), grid(0, 0), kWide},
      {"grid_sampler_2d_nearest", normals({{2, 3, 5, 6}, {2, 4, 3, 2}}), grid(1, 1), kWide},
      {"grid_sampler_2d_bicubic", normals({{2, 3, 5, 6}, {2, 4, 3, 2}}), grid(2, 2), kWide},
      {"grid_sampler_3d", normals({{2, 3, 4, 5, 6}, {2, 4, 3, 2, 3}}), grid(0, 0), kWide},
      {"affine_grid", normals({{2, 2, 3}}),
       [](S x) -> Tensors {
         return {at::affine_grid_generator(x[0], {2, 3, 4, 5}, false)};
       },
       kWide},
  };
}

}  // namespace

std::vector<Case> nn_layers() {
  std::vector<Case> all;
  for (const auto& some : {convolutions(), normalisations(), poolings(), paddings_and_samplings()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

}  // namespace headroom::sim

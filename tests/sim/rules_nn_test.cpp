// Every operator that layers, losses and activations need, on the CPU and on a simulated card: the
// card's shapes are the CPU kernel's, its numbers are the CPU's to the bit, forward and backward,
// and a card without data gives the same shapes, bytes and allocations as one that computes.
#include <gmock/gmock.h>

#include "tests/sim/nn_case.h"

namespace headroom::sim {
namespace {

using at::Tensor;
const Types kWide = {at::kFloat, at::kDouble};
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

std::vector<Case> losses() {
  std::vector<Case> all;
  for (const std::int64_t reduction : {0, 1, 2}) {
    const std::string end = "_" + std::to_string(reduction);
    const auto pair = normals({{6, 5}, {6, 5}});
    const auto target_of = [](std::int64_t count, Ints sizes, Ints target_sizes) {
      return [=](at::TensorOptions options) -> Tensors {
        return {normal(sizes, options), classes(target_sizes, count)};
      };
    };
    const auto add = [&](const char* name, auto inputs, auto run, Types types = {}) {
      if (types.empty()) types = {at::kFloat, at::kDouble, at::kBFloat16};
      all.push_back({name + end, inputs, run, types});
    };
    const auto shares = [](at::TensorOptions options) -> Tensors {
      return {share({6, 5}, options), share({6, 5}, options).detach(),
              share({5}, options).detach()};
    };
    const auto signs = [](at::TensorOptions options) -> Tensors {
      return {normal({6, 5}, options),
              at::randint(2, {6, 5}, at::kFloat).mul(2).sub(1).to(options.dtype())};
    };
    add("mse", pair, [=](S x) -> Tensors { return {at::mse_loss(x[0], x[1], reduction)}; });
    add("l1", pair, [=](S x) -> Tensors { return {at::l1_loss(x[0], x[1], reduction)}; });
    add("smooth_l1", pair,
        [=](S x) -> Tensors { return {at::smooth_l1_loss(x[0], x[1], reduction, 0.5)}; });
    add("huber", pair,
        [=](S x) -> Tensors { return {at::huber_loss(x[0], x[1], reduction, 0.5)}; });
    add("bce", shares,
        [=](S x) -> Tensors { return {at::binary_cross_entropy(x[0], x[1], x[2], reduction)}; });
    add("bce_with_logits", shares, [=](S x) -> Tensors {
      return {at::binary_cross_entropy_with_logits(x[0], x[1], x[2], x[2], reduction)};
    });
    add("kl_div", pair, [=](S x) -> Tensors { return {at::kl_div(x[0], x[1], reduction, true)}; });
    add("poisson_nll", shares, [=](S x) -> Tensors {
      return {at::poisson_nll_loss(x[0], x[1], true, true, 1e-8, reduction)};
    });
    add("soft_margin", signs,
        [=](S x) -> Tensors { return {at::soft_margin_loss(x[0], x[1], reduction)}; });
    add("hinge_embedding", signs,
        [=](S x) -> Tensors { return {at::hinge_embedding_loss(x[0], x[1], 1.0, reduction)}; });
    add("margin_ranking", normals({{6}, {6}, {6}}), [=](S x) -> Tensors {
      return {at::margin_ranking_loss(x[0], x[1], x[2].sign().detach(), 0.1, reduction)};
    });
    add("triplet", normals({{6, 5}, {6, 5}, {6, 5}}), [=](S x) -> Tensors {
      return {at::triplet_margin_loss(x[0], x[1], x[2], 1, 2, 1e-6, true, reduction)};
    });
    add("cosine_embedding", normals({{6, 5}, {6, 5}, {6}}), [=](S x) -> Tensors {
      return {at::cosine_embedding_loss(x[0], x[1], x[2].sign().detach(), 0.1, reduction)};
    });
    add("cross_entropy", target_of(5, {6, 5}, {6}), [=](S x) -> Tensors {
      return {at::cross_entropy_loss(x[0], x[1], {}, reduction, 2, 0.1)};
    });
    add("cross_entropy_of_shares", normals({{6, 5}, {6, 5}}), [=](S x) -> Tensors {
      return {at::cross_entropy_loss(x[0], x[1].softmax(1), {}, reduction, -100, 0.1)};
    });
    add("nll_2d", target_of(5, {2, 5, 3, 4}, {2, 3, 4}),
        [=](S x) -> Tensors { return {at::cross_entropy_loss(x[0], x[1], {}, reduction, 2)}; });
    add(
        "multi_margin", target_of(5, {6, 5}, {6}),
        [=](S x) -> Tensors { return {at::multi_margin_loss(x[0], x[1], 1, 1, {}, reduction)}; },
        kWide);
    add(
        "multi_margin_of_one", target_of(5, {5}, {}),
        [=](S x) -> Tensors { return {at::multi_margin_loss(x[0], x[1], 1, 1, {}, reduction)}; },
        kWide);
    add(
        "multilabel_margin", target_of(5, {6, 5}, {6, 5}),
        [=](S x) -> Tensors { return {at::multilabel_margin_loss(x[0], x[1], reduction)}; }, kWide);
    add(
        "ctc", target_of(6, {9, 2, 7}, {2, 4}),
        [=](S x) -> Tensors {
          return {at::ctc_loss(x[0].log_softmax(2), x[1] + 1, {9, 8}, {4, 3}, 0, reduction)};
        },
        kWide);
  }
  return all;
}

std::vector<Case> activations() {
  std::vector<Case> all;
  const auto add = [&](const char* name, std::function<Tensor(const Tensor&)> run,
                       Types types = {at::kFloat, at::kDouble, at::kBFloat16}) {
    all.push_back(
        {name, normals({{3, 4, 6}}), [run](S x) -> Tensors { return {run(x[0])}; }, types});
  };
  add("relu", [](const Tensor& x) { return at::relu(x); });
  add("relu6", [](const Tensor& x) { return at::relu6(x); });
  add("rrelu", [](const Tensor& x) { return at::rrelu(x, 0.1, 0.3, true); });
  add("rrelu_in_evaluation", [](const Tensor& x) { return at::rrelu(x, 0.1, 0.3, false); });
  add("leaky_relu", [](const Tensor& x) { return at::leaky_relu(x); });
  add("hardtanh", [](const Tensor& x) { return at::hardtanh(x, -0.5, 0.5); });
  add("hardswish", [](const Tensor& x) { return at::hardswish(x * 4); });
  add("hardsigmoid", [](const Tensor& x) { return at::hardsigmoid(x * 4); });
  add("hardshrink", [](const Tensor& x) { return at::hardshrink(x); });
  add("softshrink", [](const Tensor& x) { return at::softshrink(x); });
  add("tanhshrink", [](const Tensor& x) { return x - x.tanh(); });
  add("softsign", [](const Tensor& x) { return x / (x.abs() + 1); });
  add("softplus", [](const Tensor& x) { return at::softplus(x, 2, 1); });
  add("elu", [](const Tensor& x) { return at::elu(x, 0.7); });
  add("selu", [](const Tensor& x) { return at::selu(x); });
  add("celu", [](const Tensor& x) { return at::celu(x, 0.7); });
  add("gelu", [](const Tensor& x) { return at::gelu(x); });
  add("gelu_tanh", [](const Tensor& x) { return at::gelu(x, "tanh"); });
  add("silu", [](const Tensor& x) { return at::silu(x); });
  add("mish", [](const Tensor& x) { return at::mish(x); });
  add("sigmoid", [](const Tensor& x) { return at::sigmoid(x); });
  add("tanh", [](const Tensor& x) { return at::tanh(x); });
  add("threshold", [](const Tensor& x) { return at::threshold(x, 0.1, 20); });
  add("glu", [](const Tensor& x) { return at::glu(x, 1); });
  add("log_sigmoid", [](const Tensor& x) { return at::log_sigmoid(x); });
  add("softmax", [](const Tensor& x) { return at::softmax(x, 1); });
  add("softmax_to_float", [](const Tensor& x) { return at::softmax(x, 2, at::kFloat); });
  add("softmin", [](const Tensor& x) { return at::softmax(-x, 2); });
  add("log_softmax", [](const Tensor& x) { return at::log_softmax(x, 2); });
  add("logit", [](const Tensor& x) { return at::logit(x.sigmoid(), 1e-3); });
  add("abs", [](const Tensor& x) { return x.abs(); });
  add("nan_to_num", [](const Tensor& x) { return at::nan_to_num(x, 1.0); });
  add("of_transposed", [](const Tensor& x) { return at::relu(x.transpose(0, 2)).abs(); });
  add("where", [](const Tensor& x) { return at::where(x > 0, x, x.select(0, 0)); });
  add("in_place", [](const Tensor& x) {
    Tensor y = x * 2, z = x * 3;
    return at::hardtanh_(y) + at::hardswish_(z) + (x * 4).relu_();
  });
  all.push_back(
      {"prelu", normals({{3, 4, 6}, {4}}), [](S x) -> Tensors { return {at::prelu(x[0], x[1])}; }});
  all.push_back({"prelu_of_one", normals({{3, 4, 6}, {1}}),
                 [](S x) -> Tensors { return {at::prelu(x[0], x[1])}; }});
  all.push_back({"logical", normals({{3, 4}, {4}}),
                 [](S x) -> Tensors {
                   const Tensor a = x[0] > 0, b = x[1] > 0;
                   return {at::logical_and(a, x[1]),
                           at::logical_or(a, b),
                           at::logical_xor(a, b),
                           at::logical_not(x[0]),
                           x[0].isnan(),
                           x[0].detach().floor_divide(x[1].detach())};
                 },
                 kWide});
  return all;
}

std::vector<Case> dropouts_and_distances() {
  const Shapes image = {{8, 6, 5, 4}};
  const auto with = [](auto dropout) {
    return [dropout](S x) -> Tensors { return {dropout(x[0])}; };
  };
  return {
      {"dropout", normals(image), with([](const Tensor& x) { return at::dropout(x, 0.1, true); })},
      {"dropout_of_a_third", normals(image),
       with([](const Tensor& x) { return at::dropout(x, 1.0 / 3, true); })},
      {"dropout_channels_last", channels_last(image),
       with([](const Tensor& x) { return at::dropout(x, 0.3, true); })},
      {"dropout_of_transposed", normals(image),
       with([](const Tensor& x) { return at::dropout(x.transpose(1, 3), 0.3, true); })},
      {"dropout_of_all", normals(image),
       with([](const Tensor& x) { return at::dropout(x, 1, true); })},
      {"dropout_in_evaluation", normals(image),
       with([](const Tensor& x) { return at::dropout(x, 0.5, false); })},
      {"dropout_in_place", normals(image), with([](const Tensor& x) {
         Tensor y = x * 2;
         return at::dropout_(y, 0.5, true);
       })},
      {"feature_dropout", normals(image),
       with([](const Tensor& x) { return at::feature_dropout(x, 0.5, true); })},
      {"alpha_dropout", normals(image),
       with([](const Tensor& x) { return at::alpha_dropout(x, 0.5, true); })},
      {"feature_alpha_dropout", normals(image),
       with([](const Tensor& x) { return at::feature_alpha_dropout(x, 0.5, true); })},
      {"cdist", normals({{2, 5, 3}, {2, 4, 3}}),
       [](S x) -> Tensors { return {at::cdist(x[0], x[1], 1)}; }, kWide},
      {"cdist_of_broadcast", normals({{2, 5, 3}, {4, 3}}),
       [](S x) -> Tensors { return {at::cdist(x[0], x[1], 3)}; }, kWide},
      {"cdist_by_product", normals({{30, 3}, {28, 3}}),
       [](S x) -> Tensors { return {at::cdist(x[0], x[1])}; }, kWide},
      {"pdist", normals({{6, 3}}), [](S x) -> Tensors { return {at::pdist(x[0])}; }, kWide},
      {"pairwise_distance", normals({{6, 3}, {6, 3}}),
       [](S x) -> Tensors { return {at::pairwise_distance(x[0], x[1])}; }},
      {"cosine_similarity", normals({{6, 3}, {6, 3}}),
       [](S x) -> Tensors { return {at::cosine_similarity(x[0], x[1])}; }},
      {"bilinear", normals({{6, 3}, {6, 4}, {5, 3, 4}, {5}}),
       [](S x) -> Tensors { return {at::bilinear(x[0], x[1], x[2], x[3])}; }, kWide},
  };
}

std::vector<Case> every_case() {
  std::vector<Case> all;
  for (const auto& some : {convolutions(), normalisations(), poolings(), paddings_and_samplings(),
                           losses(), activations(), dropouts_and_distances()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

// ---- What holds for each ----

Tensors all_of(const Outcome& outcome) {
  Tensors all = outcome.results;
  all.insert(all.end(), outcome.gradients.begin(), outcome.gradients.end());
  return all;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return at::equal(a, b) || at::allclose(a, b, 0, 0, true);  // NaN where the other is
}

void expect_the_cpus(const Case& c, const Tensor& card, const Tensor& cpu) {
  ASSERT_EQ(card.defined(), cpu.defined());
  if (!cpu.defined()) return;
  EXPECT_EQ(card.sizes(), cpu.sizes());
  EXPECT_EQ(card.scalar_type(), cpu.scalar_type());
  if (!c.strides_differ) {
    EXPECT_EQ(card.strides(), cpu.strides());
  }
  if (c.same_bits)
    EXPECT_TRUE(same_bits(card.cpu(), cpu)) << card.cpu() << cpu;
  else
    EXPECT_TRUE(at::allclose(card.cpu(), cpu, 1e-4, 1e-5));
}

void expect_the_same_plan(const Tensor& shape_only, const Tensor& computed) {
  ASSERT_EQ(shape_only.defined(), computed.defined());
  if (!computed.defined()) return;
  EXPECT_EQ(shape_only.sizes(), computed.sizes());
  EXPECT_EQ(shape_only.strides(), computed.strides());
  EXPECT_EQ(shape_only.scalar_type(), computed.scalar_type());
  EXPECT_EQ(shape_only.storage().nbytes(), computed.storage().nbytes());
}

class NnOperator : public testing::TestWithParam<Case> {};

TEST_P(NnOperator, GivesTheCpusShapesAndNumbersInBothModes) {
  const Case& c = GetParam();
  Simulation box = simulate("1x4GiB");
  Card& card = box.card(0);
  for (const at::ScalarType type : c.types)
    for (const Rules rules : {Rules::cuda, Rules::cpu}) {
      SCOPED_TRACE(testing::Message() << type << (rules == Rules::cuda ? " cuda" : " cpu"));
      torch::manual_seed(3);
      const Tensors inputs = c.inputs(at::TensorOptions(type));
      const Outcome cpu = outcome(c, inputs, c10::kCPU, nullptr);
      card.set_rules(rules);
      card.set_mode(Mode::compute);
      const Outcome computed = outcome(c, inputs, card.device(), &card);
      card.set_mode(Mode::shape_only);
      const Outcome shape_only = outcome(c, inputs, card.device(), &card);

      EXPECT_EQ(shape_only.allocations, computed.allocations);
      for (std::size_t i = 0; i < all_of(cpu).size(); ++i) {
        SCOPED_TRACE(testing::Message() << "result or gradient " << i);
        expect_the_cpus(c, all_of(computed).at(i), all_of(cpu)[i]);
        expect_the_same_plan(all_of(shape_only).at(i), all_of(computed)[i]);
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Each, NnOperator, testing::ValuesIn(every_case()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace headroom::sim

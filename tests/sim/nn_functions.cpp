// Losses, activations, dropout, distances.
#include "tests/sim/nn_case.h"

namespace headroom::sim {
namespace {

using at::Tensor;
using S = const std::vector<Tensor>&;
using Ints = std::vector<std::int64_t>;

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

}  // namespace

std::vector<Case> nn_functions() {
  std::vector<Case> all;
  for (const auto& some : {losses(), activations(), dropouts_and_distances()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

}  // namespace headroom::sim

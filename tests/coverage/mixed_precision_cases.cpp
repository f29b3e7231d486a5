// Cases that training in mixed precision and in large kernels needs besides modules: autocast, the
// scaler's operators, optimizers as one kernel for all tensors, attention in all its variants. None
// of these is in the headers the modules are read from, so their names here are those of ATen.
#include "headroom/libtorch/autocast.h"
#include "programs.h"

namespace headroom::coverage {
namespace {

using libtorch::AutocastScope;

// Weights of one size: those that autocast keeps in another type go in the order of their
// addresses.
Program under_autocast(c10::ScalarType type) {
  return [=](Trial& t) -> Outputs {
    const auto layer = nn::LinearOptions(8, 8).bias(false);
    auto net =
        t.make([&] { return nn::Sequential(nn::Linear(layer), nn::ReLU(), nn::Linear(layer)); });
    const Tensor x = t.x({3, 8});
    const AutocastScope scope(t.device().type(), type);
    return net->forward(x);
  };
}

Program normalised_under_autocast(c10::ScalarType type) {
  return [=](Trial& t) -> Outputs {
    const auto layer = nn::LinearOptions(8, 8).bias(false);
    auto net = t.make([&] {
      return nn::Sequential(nn::Linear(layer), nn::LayerNorm(nn::LayerNormOptions({8})), nn::GELU(),
                            nn::Linear(layer), nn::LogSoftmax(1));
    });
    const Tensor x = t.x({3, 8});
    const AutocastScope scope(t.device().type(), type);
    return net->forward(x);
  };
}

// A few parameters with gradients and what an optimizer keeps of them, all without a graph.
struct Lists {
  std::vector<Tensor> parameters, gradients, first, second, third, steps;
};

Lists lists(Trial& t) {
  Lists made;
  for (const std::int64_t size : {3, 8, 1}) {
    made.parameters.push_back(t.constant({size, 4}));
    made.gradients.push_back(t.constant({size, 4}));
    made.first.push_back(t.constant({size, 4}));
    made.second.push_back(t.positive({size, 4}));
    made.third.push_back(t.positive({size, 4}));
    made.steps.push_back(t.put(torch::ones({}, at::kFloat)));
  }
  return made;
}

std::vector<Tensor> together(std::initializer_list<std::vector<Tensor>> lists) {
  std::vector<Tensor> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

Outputs changed(const Lists& all) {
  return together({all.parameters, all.gradients, all.first, all.second, all.third, all.steps});
}

template <typename Change>
Program on_lists(Change change) {
  return [=](Trial& t) -> Outputs {
    Lists all = lists(t);
    change(all);
    return changed(all);
  };
}

template <typename Make>
Program from_lists(Make make) {
  return [=](Trial& t) -> Outputs { return make(lists(t)); };
}

Cases of_scaling() {
  return {
      {"autocast", "to bf16", under_autocast(at::kBFloat16)},
      {"autocast", "to fp16", under_autocast(at::kHalf)},
      {"autocast", "of norms to bf16", normalised_under_autocast(at::kBFloat16)},
      {"autocast", "of norms to fp16", normalised_under_autocast(at::kHalf)},
      {"at::_amp_foreach_non_finite_check_and_unscale_", "",
       [](Trial& t) -> Outputs {
         std::vector<Tensor> gradients = lists(t).gradients;
         Tensor found = t.put(torch::zeros({1}));
         at::_amp_foreach_non_finite_check_and_unscale_(gradients, found,
                                                        t.put(torch::full({1}, 0.5F)));
         return together({gradients, {found}});
       }},
      {"at::_amp_update_scale_", "",
       [](Trial& t) -> Outputs {
         Tensor scale = t.put(torch::full({1}, 8.0F));
         Tensor growth = t.put(torch::zeros({1}, at::kInt));
         at::_amp_update_scale_(scale, growth, t.put(torch::zeros({1})), 2.0, 0.5, 1);
         return std::tuple(scale, growth);
       }},
  };
}

Cases of_optimizers() {
  return {
      {"at::_fused_adam_", "", on_lists([](Lists& a) {
         at::_fused_adam_(a.parameters, a.gradients, a.first, a.second, a.third, a.steps, 0.1, 0.9,
                          0.99, 0.1, 1e-8, true, false);
       })},
      {"at::_fused_adamw_", "", on_lists([](Lists& a) {
         at::_fused_adamw_(a.parameters, a.gradients, a.first, a.second, {}, a.steps, 0.1, 0.9,
                           0.99, 0.1, 1e-8, false, false);
       })},
      {"at::_fused_adamw_", "scaled",
       [](Trial& t) -> Outputs {
         Lists a = lists(t);
         at::_fused_adamw_(a.parameters, a.gradients, a.first, a.second, {}, a.steps, 0.1, 0.9,
                           0.99, 0.1, 1e-8, false, false, t.put(torch::full({}, 2.0F)),
                           t.put(torch::zeros({})));
         return changed(a);
       }},
      {"at::_fused_sgd_", "", on_lists([](Lists& a) {
         at::_fused_sgd_(a.parameters, a.gradients, a.first, 0.1, 0.9, 0.1, 0.0, true, false,
                         false);
       })},
      {"at::_fused_adagrad_", "", on_lists([](Lists& a) {
         at::_fused_adagrad_(a.parameters, a.gradients, a.second, a.steps, 0.1, 0.0, 0.1, 1e-8,
                             false);
       })},
      {"at::_foreach", "AdamW", on_lists([](Lists& a) {
         at::_foreach_mul_(a.parameters, 0.99);
         at::_foreach_lerp_(a.first, a.gradients, 0.1);
         at::_foreach_mul_(a.second, 0.99);
         at::_foreach_addcmul_(a.second, a.gradients, a.gradients, 0.01);
         std::vector<Tensor> root = at::_foreach_sqrt(a.second);
         at::_foreach_div_(root, 0.7);
         at::_foreach_add_(root, 1e-8);
         at::_foreach_addcdiv_(a.parameters, a.first, root, -0.1);
       })},
      {"at::_foreach", "SGD", on_lists([](Lists& a) {
         at::_foreach_mul_(a.first, 0.9);
         at::_foreach_add_(a.first, a.gradients, 1.0);
         at::_foreach_add_(a.parameters, a.first, -0.1);
         at::_foreach_zero_(a.gradients);
         at::_foreach_copy_(a.third, a.second);
         at::_foreach_add_(a.steps, 1.0);
         at::_foreach_neg_(a.third);
         at::_foreach_reciprocal_(a.third);
         at::_foreach_maximum_(a.third, a.second);
       })},
      {"at::_foreach", "norms",
       from_lists([](const Lists& a) { return at::_foreach_norm(a.gradients, 2); })},
      {"at::_foreach", "largest",
       from_lists([](const Lists& a) { return at::_foreach_max(a.gradients); })},
      {"at::_foreach", "new tensors", from_lists([](const Lists& a) {
         return together({at::_foreach_add(a.first, a.second), at::_foreach_mul(a.first, a.second),
                          at::_foreach_sub(a.first, a.second), at::_foreach_div(a.first, a.second),
                          at::_foreach_pow(a.second, 2), at::_foreach_abs(a.first),
                          at::_foreach_sign(a.first), at::_foreach_exp(a.first),
                          at::_foreach_clamp_min(a.first, 0.1),
                          at::_foreach_addcmul(a.first, a.second, a.third, 0.5),
                          at::_foreach_lerp(a.first, a.second, 0.5)});
       })},
  };
}

}  // namespace

Cases mixed_precision_cases() {
  Cases all = of_scaling();
  for (Case& one : of_optimizers()) all.push_back(std::move(one));
  return all;
}

}  // namespace headroom::coverage

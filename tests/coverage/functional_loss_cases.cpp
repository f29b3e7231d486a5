#include "programs.h"

namespace headroom::coverage {
namespace {

using X = const Tensor&;

template <typename Function>
Program between(Function function) {
  return [=](Trial& t) -> Outputs {
    const Tensor input = t.x({4, 5});
    return function(input, t.x({4, 5}).detach());
  };
}

template <typename Function>
Program to_class(Function function) {
  return [=](Trial& t) -> Outputs {
    const Tensor scores = t.x({4, 5});
    return function(scores, t.below(5, {4}));
  };
}

template <typename Function>
Program to_signs(Function function) {
  return [=](Trial& t) -> Outputs {
    const Tensor input = t.x({4, 5});
    return function(input, t.signs({4, 5}));
  };
}

template <typename Function>
Program to_shares(Function function) {
  return [=](Trial& t) -> Outputs {
    const Tensor input = t.share({4, 5});
    return function(input, t.share({4, 5}).detach());
  };
}

template <typename Function>
Program of_three(Function function) {
  return [=](Trial& t) -> Outputs {
    const Tensor one = t.x({4, 5});
    const Tensor other = t.x({4, 5});
    return function(one, other, t.x({4, 5}));
  };
}

}  // namespace

Cases functional_loss_cases() {
  return {
      {"F::l1_loss", "", between([](X x, X y) { return F::l1_loss(x, y); })},
      {"F::mse_loss", "", between([](X x, X y) { return F::mse_loss(x, y); })},
      {"F::smooth_l1_loss", "", between([](X x, X y) { return F::smooth_l1_loss(x, y); })},
      {"F::smooth_l1_loss", "with beta", between([](X x, X y) {
         return F::smooth_l1_loss(x, y, F::SmoothL1LossFuncOptions(), 0.5);
       })},
      {"F::huber_loss", "", between([](X x, X y) { return F::huber_loss(x, y); })},
      {"F::kl_div", "", to_shares([](X x, X y) { return F::kl_div(x, y); })},
      {"F::binary_cross_entropy", "",
       to_shares([](X x, X y) { return F::binary_cross_entropy(x, y); })},
      {"F::binary_cross_entropy_with_logits", "",
       to_shares([](X x, X y) { return F::binary_cross_entropy_with_logits(x, y); })},
      {"F::poisson_nll_loss", "", to_shares([](X x, X y) { return F::poisson_nll_loss(x, y); })},
      {"F::multilabel_soft_margin_loss", "",
       to_shares([](X x, X y) { return F::multilabel_soft_margin_loss(x, y); })},
      {"F::hinge_embedding_loss", "",
       to_signs([](X x, X y) { return F::hinge_embedding_loss(x, y); })},
      {"F::soft_margin_loss", "", to_signs([](X x, X y) { return F::soft_margin_loss(x, y); })},
      {"F::nll_loss", "", to_class([](X x, X y) { return F::nll_loss(x, y); })},
      {"F::cross_entropy", "", to_class([](X x, X y) { return F::cross_entropy(x, y); })},
      {"F::multi_margin_loss", "", to_class([](X x, X y) { return F::multi_margin_loss(x, y); })},
      {"F::multilabel_margin_loss", "",
       [](Trial& t) -> Outputs {
         const Tensor target = t.put(torch::tensor({{3, 0, -1, 1}, {1, -1, 0, 0}}));
         return F::multilabel_margin_loss(t.x({2, 4}), target);
       }},
      {"F::cosine_embedding_loss", "",
       [](Trial& t) -> Outputs {
         const Tensor one = t.x({4, 5});
         const Tensor other = t.x({4, 5});
         return F::cosine_embedding_loss(one, other, t.signs({4}));
       }},
      {"F::margin_ranking_loss", "",
       [](Trial& t) -> Outputs {
         const Tensor one = t.x({4});
         const Tensor other = t.x({4});
         return F::margin_ranking_loss(one, other, t.signs({4}));
       }},
      {"F::triplet_margin_loss", "",
       of_three([](X x, X y, X z) { return F::triplet_margin_loss(x, y, z); })},
      {"F::triplet_margin_with_distance_loss", "",
       of_three([](X x, X y, X z) { return F::triplet_margin_with_distance_loss(x, y, z); })},
      {"F::ctc_loss", "",
       [](Trial& t) -> Outputs {
         const Tensor scores = t.x({8, 2, 5}).log_softmax(2);
         return F::ctc_loss(scores, t.below(4, {2, 3}) + 1, torch::tensor({8, 7}),
                            torch::tensor({3, 2}));
       }},
  };
}

}  // namespace headroom::coverage

#include "programs.h"

namespace headroom::coverage {
namespace {

Cases of_norms() {
  return {
      {"F::batch_norm", "",
       [](Trial& t) -> Outputs {
         const Tensor x = t.x({4, 3, 5});
         const Tensor mean = t.constant({3});
         const Tensor variance = t.positive({3});
         const Tensor weight = t.x({3});
         return F::batch_norm(
             x, mean, variance,
             F::BatchNormFuncOptions().weight(weight).bias(t.x({3})).training(true));
       }},
      {"F::instance_norm", "",
       [](Trial& t) -> Outputs {
         return F::instance_norm(t.x({4, 3, 5}));
       }},
      {"F::layer_norm", "",
       [](Trial& t) -> Outputs {
         const Tensor x = t.x({4, 8});
         return F::layer_norm(x, F::LayerNormFuncOptions({8}).weight(t.x({8})));
       }},
      {"F::group_norm", "",
       [](Trial& t) -> Outputs {
         const Tensor x = t.x({2, 6, 5});
         return F::group_norm(x, F::GroupNormFuncOptions(3).weight(t.x({6})));
       }},
      {"F::local_response_norm", "",
       [](Trial& t) -> Outputs {
         return F::local_response_norm(t.x({2, 6, 4, 5}), F::LocalResponseNormFuncOptions(3));
       }},
      {"F::normalize", "",
       [](Trial& t) -> Outputs {
         return F::normalize(t.x({4, 8}));
       }},
      {"F::normalize", "by any power",
       [](Trial& t) -> Outputs {
         return F::normalize(t.x({4, 8}), F::NormalizeFuncOptions().p(3).dim(0));
       }},
      {"F::normalize", "into a tensor",
       [](Trial& t) -> Outputs {
         Tensor out = t.constant({4, 8});
         return F::normalize(t.constant({4, 8}), F::NormalizeFuncOptions().out(out));
       }},
      {"F::cosine_similarity", "",
       [](Trial& t) -> Outputs {
         const Tensor x = t.x({4, 8});
         return F::cosine_similarity(x, t.x({4, 8}));
       }},
      {"F::pairwise_distance", "",
       [](Trial& t) -> Outputs {
         const Tensor x = t.x({4, 8});
         return F::pairwise_distance(x, t.x({4, 8}));
       }},
      {"F::pdist", "",
       [](Trial& t) -> Outputs {
         return F::pdist(t.x({5, 4}));
       }},
      {"F::pdist", "in steps",
       [](Trial& t) -> Outputs {
         return F::pdist(t.x({5, 4}), 1);
       }},
  };
}

Cases of_products() {
  return {
      {"F::linear", "",
       [](Trial& t) -> Outputs {
         const Tensor x = t.x({3, 4});
         const Tensor weight = t.x({6, 4});
         return F::linear(x, weight, t.x({6}));
       }},
      {"F::bilinear", "",
       [](Trial& t) -> Outputs {
         const Tensor x = t.x({3, 4});
         const Tensor y = t.x({3, 5});
         return F::bilinear(x, y, t.x({6, 4, 5}));
       }},
      {"F::embedding", "",
       [](Trial& t) -> Outputs {
         const Tensor weight = t.x({10, 4});
         return F::embedding(t.below(10, {3, 2}), weight, F::EmbeddingFuncOptions().padding_idx(1));
       }},
      {"F::embedding_bag", "",
       [](Trial& t) -> Outputs {
         const Tensor weight = t.x({10, 4});
         return F::embedding_bag(t.below(10, {3, 2}), weight);
       }},
      {"F::embedding_bag", "of sums",
       [](Trial& t) -> Outputs {
         const Tensor weight = t.x({10, 4});
         const Tensor offsets = t.put(torch::tensor({0, 2}));
         return F::embedding_bag(t.below(10, {5}), weight,
                                 F::EmbeddingBagFuncOptions()
                                     .mode(torch::kSum)
                                     .offsets(offsets)
                                     .per_sample_weights(t.x({5})));
       }},
      {"F::one_hot", "",
       [](Trial& t) -> Outputs {
         return F::one_hot(t.below(5, {3, 2}), 5);
       }},
      {"F::one_hot", "of as many classes as there are",
       [](Trial& t) -> Outputs {
         return F::one_hot(t.below(5, {3, 2}));
       }},
      {"F::multi_head_attention_forward", "",
       [](Trial& t) -> Outputs {
         const Tensor x = t.x({5, 2, 8});
         const Tensor in = t.x({24, 8});
         const Tensor in_bias = t.x({24});
         const Tensor out = t.x({8, 8});
         return F::multi_head_attention_forward(
             x, x, x,
             F::MultiheadAttentionForwardFuncOptions(8, 2, in, in_bias, {}, {}, false, 0.1, out,
                                                     t.x({8})));
       }},
  };
}

}  // namespace

Cases functional_cases() {
  Cases all = of_norms();
  for (Case& one : of_products()) all.push_back(std::move(one));
  return all;
}

}  // namespace headroom::coverage

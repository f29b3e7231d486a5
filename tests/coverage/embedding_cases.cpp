#include "programs.h"

namespace headroom::coverage {
namespace {

Program embedding(nn::EmbeddingOptions options, Sizes sizes = {3, 4}) {
  return [=](Trial& t) -> Outputs { return t.forward<nn::Embedding>(options, t.below(10, sizes)); };
}

Program bags(nn::EmbeddingBagOptions options) {
  return [=](Trial& t) -> Outputs {
    const Tensor ids = t.below(10, {7});
    return t.forward<nn::EmbeddingBag>(options, ids, t.put(torch::tensor({0, 2, 2, 5})));
  };
}

}  // namespace

Cases embedding_cases() {
  using Options = nn::EmbeddingOptions;
  using Bag = nn::EmbeddingBagOptions;
  return {
      {"Embedding", "", embedding(Options(10, 4))},
      {"Embedding", "with padding", embedding(Options(10, 4).padding_idx(2))},
      {"Embedding", "by frequency", embedding(Options(10, 4).scale_grad_by_freq(true))},
      {"Embedding", "with a largest norm", embedding(Options(10, 4).max_norm(1.0))},
      {"Embedding", "sparse", embedding(Options(10, 4).sparse(true))},
      {"Embedding", "of nothing", embedding(Options(10, 4), {0})},
      {"Embedding", "of many", embedding(Options(10, 3), {40, 80})},
      {"Embedding", "by int32",
       [](Trial& t) -> Outputs {
         return t.forward<nn::Embedding>(Options(10, 4), t.below(10, {3, 4}).to(at::kInt));
       }},
      {"Embedding", "from a table",
       [](Trial& t) -> Outputs {
         auto module = nn::Embedding::from_pretrained(t.constant({10, 4}));
         return module->forward(t.below(10, {3}));
       }},
      {"EmbeddingBag", "", bags(Bag(10, 4))},
      {"EmbeddingBag", "of sums", bags(Bag(10, 4).mode(torch::kSum))},
      {"EmbeddingBag", "of maxima", bags(Bag(10, 4).mode(torch::kMax))},
      {"EmbeddingBag", "with padding", bags(Bag(10, 4).padding_idx(3))},
      {"EmbeddingBag", "by frequency", bags(Bag(10, 4).scale_grad_by_freq(true))},
      {"EmbeddingBag", "sparse", bags(Bag(10, 4).sparse(true).mode(torch::kSum))},
      {"EmbeddingBag", "with the last offset", bags(Bag(10, 4).include_last_offset(true))},
      {"EmbeddingBag", "with a largest norm", bags(Bag(10, 4).max_norm(1.0))},
      {"EmbeddingBag", "of equal bags",
       [](Trial& t) {
         return t.forward<nn::EmbeddingBag>(Bag(10, 4), t.below(10, {3, 4}));
       }},
      {"EmbeddingBag", "weighted",
       [](Trial& t) {
         const Tensor ids = t.below(10, {3, 4});
         return t.forward<nn::EmbeddingBag>(Bag(10, 4).mode(torch::kSum), ids, Tensor(),
                                            t.x({3, 4}));
       }},
  };
}

}  // namespace headroom::coverage

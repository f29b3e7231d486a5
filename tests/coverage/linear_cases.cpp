#include "programs.h"

namespace headroom::coverage {

Cases linear_cases() {
  return {
      {"Linear", "", on_x<nn::Linear>({3, 4}, nn::LinearOptions(4, 6))},
      {"Linear", "without bias", on_x<nn::Linear>({3, 4}, nn::LinearOptions(4, 6).bias(false))},
      {"Linear", "of a sequence", on_x<nn::Linear>({2, 3, 4}, nn::LinearOptions(4, 6))},
      {"Linear", "of a sequence without bias",
       on_x<nn::Linear>({2, 3, 4}, nn::LinearOptions(4, 6).bias(false))},
      {"Linear", "of one vector", on_x<nn::Linear>({4}, nn::LinearOptions(4, 6))},
      {"Linear", "of an image", on_x<nn::Linear>({2, 3, 5, 4}, nn::LinearOptions(4, 6))},
      {"Linear", "to one", on_x<nn::Linear>({1, 7}, nn::LinearOptions(7, 1))},
      {"Linear", "of nothing", on_x<nn::Linear>({0, 4}, nn::LinearOptions(4, 6))},
      {"Bilinear", "",
       [](Trial& t) {
         const Tensor x = t.x({3, 4});
         return t.forward<nn::Bilinear>(nn::BilinearOptions(4, 5, 6), x, t.x({3, 5}));
       }},
      {"Bilinear", "without bias",
       [](Trial& t) {
         const Tensor x = t.x({2, 3, 4});
         return t.forward<nn::Bilinear>(nn::BilinearOptions(4, 5, 6).bias(false), x,
                                        t.x({2, 3, 5}));
       }},
      {"CosineSimilarity", "", to_target<nn::CosineSimilarity>({3, 5})},
      {"CosineSimilarity", "of images",
       to_target<nn::CosineSimilarity>({2, 3, 4, 5}, nn::CosineSimilarityOptions().dim(1))},
      {"PairwiseDistance", "", to_target<nn::PairwiseDistance>({3, 5})},
      {"PairwiseDistance", "in steps",
       to_target<nn::PairwiseDistance>({3, 5}, nn::PairwiseDistanceOptions().p(1).keepdim(true))},
      {"PairwiseDistance", "of any power",
       to_target<nn::PairwiseDistance>({3, 5}, nn::PairwiseDistanceOptions().p(3))},
  };
}

}  // namespace headroom::coverage

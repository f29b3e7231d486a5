// Texts for a masked-language model, such as BERT: some tokens of each example are hidden, and the
// labels are what was hidden.
//
//   const auto set = data::masked_tokens(texts, {.mask_token = 103, .vocabulary = 30'522});
//   set->example(0, seed);   // {tokens with some replaced, labels: -100 where none was chosen}
//
// As in BERT's own training (Devlin et al., 2018, section 3.1): 15 % of an example's tokens are
// chosen, at least one. Of these 80 % become the mask token, 10 % a random one, and 10 % stay. The
// example's seed alone decides which, so a Loader draws others in each epoch, and the same again
// after a resume, in a repeated step, and with any number of threads.
//
// Tokens without a label are never chosen, nor are those that `never` names.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "headroom/data/dataset.h"

namespace headroom::data {

struct MaskOptions {
  std::int64_t mask_token = 0;           // its id
  std::int64_t vocabulary = 0;           // random tokens are below it
  std::vector<std::int64_t> never = {};  // such as the token between documents
  double share = 0.15;                   // of an example's tokens: those to predict
  double hidden = 0.8, random = 0.1;     // of these: replaced by the mask token, by a random one
};

// `texts` gives {tokens [seq], labels [seq]} with each token's label at its own place, as a
// TokenFile does. Throws UsageError for options that make no sense.
[[nodiscard]] std::shared_ptr<Dataset> masked_tokens(std::shared_ptr<const Dataset> texts,
                                                     const MaskOptions& options);

}  // namespace headroom::data

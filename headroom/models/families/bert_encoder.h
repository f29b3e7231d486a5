// The encoder that BERT and RoBERTa share (BertModel and RobertaModel of modeling_bert.py and
// modeling_roberta.py of transformers). They differ in how they count positions. With
// `is_decoder` it is a decoder without an encoder.
#pragma once

#include <cstdint>
#include <memory>

#include "headroom/model/shapes.h"
#include "headroom/models/detail/attention.h"
#include "headroom/models/detail/family.h"

namespace headroom::models::detail {

using model::BertShape;

struct BertStates {
  Tensor states;  // [batch, length, width]; of a part those to hand on
  Tensor pooled;  // [batch, width]; undefined without a pooler
};

class BertEmbeddings;
class BertLayer;

class BertModel : public torch::nn::Module {
 public:
  BertModel(const model::ModelConfig& config, const Here& here, bool with_pooler);

  [[nodiscard]] BertStates operator()(const Batch& batch, const Net& net, Cache* cache) const;
  // The word embedding, to tie a head to; without memory if it is not here.
  [[nodiscard]] const Tensor& embedding() const;

 private:
  [[nodiscard]] Tensor mask_of(const Batch& batch, const LayerInputs& with,
                               at::ScalarType type) const;
  [[nodiscard]] Tensor older_mask_of(const Batch& batch, const LayerInputs& with,
                                     at::ScalarType type) const;

  const BertShape shape_;
  const std::shared_ptr<BertEmbeddings> embeddings_;
  const std::shared_ptr<nn::List<BertLayer>> layers_;
  std::shared_ptr<nn::Linear> pooler_;
};

}  // namespace headroom::models::detail

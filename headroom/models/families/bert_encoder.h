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
  Tensor states;  // [batch, length, width]
  Tensor pooled;  // [batch, width]; undefined without a pooler
};

class BertEmbeddings;
class BertLayer;

class BertModel : public torch::nn::Module {
 public:
  BertModel(const model::ModelConfig& config, bool with_pooler);

  [[nodiscard]] BertStates operator()(const Batch& batch, const Net& net, Cache* cache) const;
  [[nodiscard]] const Tensor& embedding() const;  // the word embedding, to tie a head to

 private:
  [[nodiscard]] Tensor mask_of(const Batch& batch, const LayerInputs& with) const;
  [[nodiscard]] Tensor older_mask_of(const Batch& batch, const LayerInputs& with) const;

  const BertShape shape_;
  const std::shared_ptr<BertEmbeddings> embeddings_;
  const std::shared_ptr<nn::List<BertLayer>> layers_;
  std::shared_ptr<nn::Linear> pooler_;
};

}  // namespace headroom::models::detail

// The encoder that BERT and RoBERTa share (BertModel and RobertaModel of modeling_bert.py and
// modeling_roberta.py, transformers 4.57.6). They differ in how they count positions. With
// `is_decoder` it is a decoder without an encoder.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "headroom/model/shapes.h"
#include "headroom/models/detail/family.h"

namespace headroom::models::detail {

using model::BertShape;

struct BertStates {
  Tensor states;  // [batch, length, width]
  Tensor pooled;  // [batch, width]; undefined without a pooler
};

// Net::run_layer, passed in.
using RunLayer = std::function<nn::Tensors(
    std::size_t, const std::function<nn::Tensors(const nn::Tensors&)>&, const nn::Tensors&)>;

class BertEmbeddings;
class BertLayers;

class BertModel : public torch::nn::Module {
 public:
  BertModel(const model::ModelConfig& config, bool with_pooler);

  [[nodiscard]] BertStates operator()(const Batch& batch, Attention attention, Cache* cache,
                                      const RunLayer& run_layer) const;
  [[nodiscard]] const Tensor& embedding() const;  // the word embedding, to tie a head to

 private:
  const BertShape shape_;
  const std::shared_ptr<BertEmbeddings> embeddings_;
  const std::shared_ptr<BertLayers> encoder_;
  std::shared_ptr<nn::Linear> pooler_;
};

}  // namespace headroom::models::detail

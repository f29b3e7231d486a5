// Llama, Mistral, Qwen2 and Qwen3 (modeling_llama.py, modeling_mistral.py, modeling_qwen2.py and
// modeling_qwen3.py of transformers): one decoder with four small differences.
#include "headroom/models/families/decoder.h"

namespace headroom::models::detail {
namespace llama {
namespace {

using decoder::GatedMlp;
using decoder::Plan;
using decoder::Shape;
using model::ModelConfig;
using Layer = decoder::PlainLayer<nn::RmsNorm, decoder::SelfAttention, GatedMlp>;

Plan plan(const ModelConfig& config, Transformers) {
  const Shape shape(config);
  const nn::Activation function = nn::activation(shape.function);
  const auto layer = [shape, function] {
    return std::make_shared<Layer>(shape,
                                   [&] { return std::make_shared<GatedMlp>(shape, function); });
  };
  return {.shape = shape, .layer = layer, .norm = decoder::norm_like<nn::RmsNorm>(shape)};
}

}  // namespace
}  // namespace llama

Build llama_family() {
  return decoder::family(llama::plan);
}

}  // namespace headroom::models::detail

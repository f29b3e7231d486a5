#include <limits>

#include "programs.h"

namespace headroom::coverage {
namespace {

// A causal mask: each position sees only earlier ones and itself.
Tensor causal(const Trial& t, std::int64_t length) {
  return t.put(torch::full({length, length}, -std::numeric_limits<double>::infinity(), at::kFloat)
                   .triu(1)
                   .to(t.type()));
}

Program attention(nn::MultiheadAttentionOptions options) {
  return [=](Trial& t) -> Outputs {
    const Tensor x = t.x({5, 2, 8});
    return t.forward<nn::MultiheadAttention>(options, x, x, x);
  };
}

nn::TransformerEncoderLayerOptions encoder_layer() {
  return nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16);
}

nn::TransformerDecoderLayerOptions decoder_layer() {
  return nn::TransformerDecoderLayerOptions(8, 2).dim_feedforward(16);
}

nn::TransformerOptions small() {
  return nn::TransformerOptions(8, 2).num_encoder_layers(2).num_decoder_layers(1).dim_feedforward(
      16);
}

}  // namespace

Cases transformer_cases() {
  using Heads = nn::MultiheadAttentionOptions;
  return {
      {"MultiheadAttention", "", attention(Heads(8, 2))},
      {"MultiheadAttention", "without bias", attention(Heads(8, 2).bias(false))},
      {"MultiheadAttention", "with dropout", attention(Heads(8, 2).dropout(0.3))},
      {"MultiheadAttention", "with keys and values of its own",
       attention(Heads(8, 2).add_bias_kv(true).add_zero_attn(true))},
      {"MultiheadAttention", "across sizes",
       [](Trial& t) {
         const Tensor query = t.x({5, 2, 8});
         const Tensor key = t.x({4, 2, 6});
         return t.forward<nn::MultiheadAttention>(Heads(8, 2).kdim(6).vdim(6), query, key,
                                                  t.x({4, 2, 6}));
       }},
      {"MultiheadAttention", "masked",
       [](Trial& t) -> Outputs {
         auto module = t.build<nn::MultiheadAttention>(Heads(8, 2));
         const Tensor x = t.x({5, 2, 8});
         const Tensor padding = t.put(torch::tensor({{0, 0, 0, 0, 1}, {0, 0, 0, 0, 0}}, at::kBool));
         return module->forward(x, x, x, padding, false, causal(t, 5));
       }},
      {"TransformerEncoderLayer", "",
       [](Trial& t) {
         return t.forward<nn::TransformerEncoderLayer>(encoder_layer(), t.x({5, 2, 8}));
       }},
      {"TransformerEncoderLayer", "by gelu",
       [](Trial& t) {
         return t.forward<nn::TransformerEncoderLayer>(
             encoder_layer().dropout(0).activation(torch::kGELU), t.x({5, 2, 8}), causal(t, 5));
       }},
      {"TransformerEncoderLayer", "evaluating",
       [](Trial& t) {
         return t.evaluate<nn::TransformerEncoderLayer>(encoder_layer(), t.x({5, 2, 8}));
       }},
      {"TransformerDecoderLayer", "",
       [](Trial& t) {
         const Tensor x = t.x({5, 2, 8});
         return t.forward<nn::TransformerDecoderLayer>(decoder_layer(), x, t.x({4, 2, 8}));
       }},
      {"TransformerDecoderLayer", "masked",
       [](Trial& t) {
         const Tensor x = t.x({5, 2, 8});
         return t.forward<nn::TransformerDecoderLayer>(decoder_layer(), x, t.x({4, 2, 8}),
                                                       causal(t, 5));
       }},
      {"TransformerEncoder", "",
       [](Trial& t) -> Outputs {
         auto module = t.make([] {
           return nn::TransformerEncoder(nn::TransformerEncoderOptions(encoder_layer(), 2));
         });
         return module->forward(t.x({5, 2, 8}));
       }},
      {"TransformerEncoder", "normalised",
       [](Trial& t) -> Outputs {
         auto module = t.make([] {
           return nn::TransformerEncoder(
               nn::TransformerEncoderOptions(encoder_layer(), 1)
                   .norm(nn::AnyModule(nn::LayerNorm(nn::LayerNormOptions({8})))));
         });
         return module->forward(t.x({5, 2, 8}));
       }},
      {"TransformerDecoder", "",
       [](Trial& t) -> Outputs {
         auto module = t.make([] {
           return nn::TransformerDecoder(nn::TransformerDecoderOptions(decoder_layer(), 2));
         });
         const Tensor x = t.x({5, 2, 8});
         return module->forward(x, t.x({4, 2, 8}));
       }},
      {"Transformer", "",
       [](Trial& t) {
         const Tensor source = t.x({4, 2, 8});
         return t.forward<nn::Transformer>(small(), source, t.x({5, 2, 8}));
       }},
      {"Transformer", "masked",
       [](Trial& t) {
         const Tensor source = t.x({4, 2, 8});
         return t.forward<nn::Transformer>(small().dropout(0), source, t.x({5, 2, 8}), causal(t, 4),
                                           causal(t, 5), Tensor());
       }},
  };
}

}  // namespace headroom::coverage

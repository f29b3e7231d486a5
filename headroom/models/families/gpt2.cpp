// GPT-2 and DistilGPT-2 (modeling_gpt2.py of transformers).
//
// Where it matters, each statement runs one operation, and variables live as long as in Python: see
// families/decoder.h.
#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cmath>

#include "headroom/model/shapes.h"
#include "headroom/models/detail/decoder_heads.h"

namespace headroom::models::detail {
namespace gpt2 {
namespace {

using model::ModelConfig;
using nn::Conv1D;
using nn::LayerNorm;

using Shape = model::Gpt2Shape;

class SelfAttention : public torch::nn::Module {
 public:
  // 4.57 has a buffer of the squared maximum length for the positions that tokens see.
  SelfAttention(const Shape& shape, std::int64_t layer, Transformers transformers)
      : shape_(shape),
        layer_(layer),
        causal_(transformers == Transformers::v5
                    ? Tensor()
                    : register_buffer("bias", seen_before(shape.positions))),
        qkv_(child<Conv1D>(*this, "c_attn", shape.width, 3 * shape.width)),
        out_(child<Conv1D>(*this, "c_proj", shape.width, shape.width)) {
    if (causal_.defined())
      register_buffer("masked_bias", at::full({}, -1e4));  // unused, as in transformers
  }

  Attended operator()(const Tensor& states, const LayerInputs& with) const {
    const std::vector<Tensor> parts = (*qkv_)(states).split(shape_.width, 2);
    const std::int64_t width = shape_.width / shape_.heads;
    Tensor k = heads_of(parts[1], width), v = heads_of(parts[2], width);
    const Tensor q = heads_of(parts[0], width);
    keep(with.cache, k, v);
    Attended attended = attend_to(q, k, v, with);
    Tensor& out = attended.out;
    out = out.reshape({states.size(0), states.size(1), -1}).contiguous();
    out = (*out_)(out);
    out = at::dropout(out, shape_.residual_dropout, is_training());
    return attended;
  }

 private:
  static Tensor seen_before(std::int64_t positions) {
    const Tensor all = at::ones({positions, positions}, at::kBool);
    return at::tril(all).view({1, 1, positions, positions});
  }

  [[nodiscard]] double scale(std::int64_t width) const {
    const double by_width = shape_.scaled ? 1 / std::sqrt(static_cast<double>(width)) : 1;
    return shape_.scaled_by_layer ? by_width / static_cast<double>(layer_ + 1) : by_width;
  }

  // In 4.57 only the eager form applies scales per layer.
  [[nodiscard]] Attended attend_to(const Tensor& q, const Tensor& k, const Tensor& v,
                                   const LayerInputs& with) const {
    if (with.attention == Attention::eager) {
      Tensor weights = shape_.upcast   ? upcast_weights(q, k)
                       : with.newest() ? at::matmul(q, k.transpose(-1, -2)) * scale(q.size(-1))
                                       : divided_weights(q, k);
      return with_weights(std::move(weights), v, with.mask);
    }
    AttentionOptions options;
    options.dropout = is_training() ? shape_.attention_dropout : 0;
    options.is_causal = !with.mask.defined() && q.size(2) > 1;
    if (with.newest()) options.scaling = scale(q.size(-1));
    return {sdpa(q, k, v, with.mask, options), {}};
  }

  [[nodiscard]] Tensor divided_weights(const Tensor& q, const Tensor& k) const {
    Tensor weights = at::matmul(q, k.transpose(-1, -2));
    if (shape_.scaled) {
      const Tensor root =
          at::full({}, std::sqrt(static_cast<double>(q.size(-1))), weights.options());
      weights = weights / root;
    }
    if (shape_.scaled_by_layer) weights = weights / static_cast<double>(layer_ + 1);
    return weights;
  }

  // Scales and multiplies in float, as one operation.
  [[nodiscard]] Tensor upcast_weights(const Tensor& q, const Tensor& k) const {
    const std::int64_t rows = q.size(0), length = q.size(2), width = q.size(3), keys = k.size(2);
    Tensor weights = at::empty({rows * shape_.heads, length, keys}, q.options().dtype(at::kFloat));
    const c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::autocast_dispatch_keyset);
    const Tensor queries = q.reshape({-1, length, width});
    const Tensor transposed = k.transpose(-1, -2).reshape({-1, width, keys});
    weights =
        at::baddbmm(weights, queries.to(at::kFloat), transposed.to(at::kFloat), 0, scale(width));
    return weights.reshape({rows, shape_.heads, length, keys});
  }

  [[nodiscard]] Attended with_weights(Tensor weights, const Tensor& v, const Tensor& mask) const {
    const std::int64_t queries = weights.size(2), keys = weights.size(3);
    if (causal_.defined()) {
      const Tensor causal = causal_.slice(2, keys - queries, keys).slice(3, 0, keys);
      const Tensor hidden = at::full({}, lowest(weights.scalar_type()), weights.options());
      weights = at::where(causal, weights, hidden);
    }
    if (mask.defined()) weights = weights + mask.slice(3, 0, keys);
    weights = at::softmax(weights, -1);
    weights = weights.to(v.scalar_type());
    weights = at::dropout(weights, shape_.attention_dropout, is_training());
    return {at::matmul(weights, v).transpose(1, 2), weights};
  }

  const Shape shape_;
  const std::int64_t layer_;
  const Tensor causal_;
  const std::shared_ptr<Conv1D> qkv_, out_;
};

class Block : public torch::nn::Module {
 public:
  Block(const Shape& shape, const nn::Activation& activation, std::int64_t layer,
        Transformers transformers)
      : first_norm_(child<LayerNorm>(*this, "ln_1", shape.width, shape.epsilon)),
        attention_(child<SelfAttention>(*this, "attn", shape, layer, transformers)),
        second_norm_(child<LayerNorm>(*this, "ln_2", shape.width, shape.epsilon)),
        mlp_(child<Mlp<Conv1D>>(*this, "mlp", "c_fc", "c_proj", shape.width, shape.inner,
                                activation, shape.residual_dropout)) {}

  Tensor operator()(Tensor states, const LayerInputs& with) const {
    Tensor residual = states;
    states = (*first_norm_)(states);
    const Attended attended = (*attention_)(states, with);
    states = attended.out + residual;
    residual = states;
    states = (*second_norm_)(states);
    const Tensor inner = (*mlp_)(states);
    return residual + inner;
  }

 private:
  const std::shared_ptr<LayerNorm> first_norm_;
  const std::shared_ptr<SelfAttention> attention_;
  const std::shared_ptr<LayerNorm> second_norm_;
  const std::shared_ptr<Mlp<Conv1D>> mlp_;
};

class Gpt2 : public Decoder {
 public:
  Gpt2(const ModelConfig& config, Transformers transformers, const Here& here)
      : shape_(config),
        tokens_(here.words(*this, "wte", shape_.vocabulary, shape_.width)),
        positions_(here.begins()
                       ? child<nn::Embedding>(*this, "wpe", shape_.positions, shape_.width)
                       : nullptr),
        layers_(child<nn::List<Block>>(*this, "h")),
        norm_(here.ends() ? child<LayerNorm>(*this, "ln_f", shape_.width, shape_.epsilon)
                          : nullptr) {
    const nn::Activation function = nn::activation(shape_.function);
    for (std::int64_t i = 0; i < shape_.layers; ++i)
      here.add(*layers_, i,
               [&] { return std::make_shared<Block>(shape_, function, i, transformers); });
  }

  Tensor operator()(const Batch& batch, const Net& net, const LayerInputs& given) const override {
    const bool begins = net.here().begins();
    const Tensor embedded = begins ? (*tokens_)(batch.tokens) : batch.given.at(0);
    const Tensor positions = at::arange(batch.tokens.size(1), batch.tokens.options());
    const Tensor places = begins ? (*positions_)(positions.unsqueeze(0)) : Tensor();
    Tensor states = begins ? embedded + places : embedded;
    const auto with = std::make_shared<const LayerInputs>(given);
    const Tensor mask = causal_mask(batch, positions, given.mask_options(embedded.scalar_type()));
    if (begins) states = at::dropout(states, shape_.embedding_dropout, is_training());
    for (std::size_t i = 0; i < layers_->size(); ++i) {
      if (!(*layers_)[i]) continue;
      // The mask is an input, because the backward pass frees inputs but not the function's
      // captures.
      const auto run = [layer = (*layers_)[i], with](const nn::Tensors& x) {
        LayerInputs own = *with;
        own.mask = x[1];
        return nn::Tensors{(*layer)(x[0], own)};
      };
      states = net.run_layer(i, run, nn::Tensors{states, mask})[0];
    }
    return net.here().ends() ? (*norm_)(states) : states;
  }

  [[nodiscard]] const Tensor& embedding() const override { return tokens_->weight; }

 private:
  const Shape shape_;
  const std::shared_ptr<nn::Embedding> tokens_, positions_;
  const std::shared_ptr<nn::List<Block>> layers_;
  const std::shared_ptr<LayerNorm> norm_;
};

}  // namespace
}  // namespace gpt2

Build gpt2_family() {
  return decoder_family<gpt2::Gpt2>({.decoder = "transformer", .head = "lm_head"});
}

}  // namespace headroom::models::detail

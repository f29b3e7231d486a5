#include "tests/nets/layers.h"

namespace headroom::nets {

Tensor attention(Tensor q, Tensor k, Tensor v, std::int64_t heads, bool causal) {
  const std::int64_t batch = q.size(0), width = q.size(2);
  q = q.view({batch, -1, heads, width / heads}).transpose(1, 2);
  k = k.view({batch, -1, heads, width / heads}).transpose(1, 2);
  v = v.view({batch, -1, heads, width / heads}).transpose(1, 2);
  const Tensor out = torch::scaled_dot_product_attention(q, k, v, {}, 0.0, causal);
  return out.transpose(1, 2).reshape({batch, -1, width});
}

Block::Block(const Options& options) : options_(options) {
  const std::int64_t width = options.width;
  const auto norm = [&] { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})); };
  norm1_ = register_module("norm1", norm());
  norm2_ = register_module("norm2", norm());
  qkv_ = register_module("qkv", torch::nn::Linear(width, 3 * width));
  out_ = register_module("out", torch::nn::Linear(width, width));
  up_ = register_module("up", torch::nn::Linear(width, 4 * width));
  down_ = register_module("down", torch::nn::Linear(4 * width, width));
  if (!options.across) return;
  norm3_ = register_module("norm3", norm());
  query_ = register_module("query", torch::nn::Linear(width, width));
  key_value_ = register_module("key_value", torch::nn::Linear(width, 2 * width));
  out2_ = register_module("out2", torch::nn::Linear(width, width));
}

Tensor Block::dropped(Tensor x) const {
  return options_.dropout > 0 ? torch::dropout(x, options_.dropout, is_training()) : x;
}

Tensor Block::forward(Tensor x, const Tensor& memory) {
  Tensor h = norm1_(x);
  h = linear(h, qkv_);
  {
    std::vector<Tensor> parts = h.chunk(3, -1);
    h = attention(parts[0], parts[1], parts[2], options_.heads, options_.causal);
  }
  h = linear(h, out_);
  h = dropped(h);
  x = x + h;
  if (memory.defined()) {
    h = norm3_(x);
    Tensor q = linear(h, query_);
    h = linear(memory, key_value_);
    {
      std::vector<Tensor> parts = h.chunk(2, -1);
      h = attention(q, parts[0], parts[1], options_.heads, false);
    }
    q.reset();
    h = linear(h, out2_);
    x = x + h;
  }
  h = norm2_(x);
  h = linear(h, up_);
  h = torch::gelu(h);
  h = linear(h, down_);
  h = dropped(h);
  return x + h;
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Layer : torch::CustomClassHolder {
  explicit Layer(std::function<Tensor(Tensor)> f) : run(std::move(f)) {}
  const std::function<Tensor(Tensor)> run;
};

struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static Tensor forward(AutogradContext* context, const Tensor& x,
                        const c10::intrusive_ptr<Layer>& layer) {
    context->save_for_backward({x});
    context->saved_data["layer"] = c10::IValue::make_capsule(layer);
    return layer->run(x);  // without grad: apply() sees to it
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto layer =
        c10::static_intrusive_pointer_cast<Layer>(context->saved_data.at("layer").toCapsule());
    const Tensor input = context->get_saved_variables()[0].detach().requires_grad_();
    const torch::AutoGradMode with_grad(true);
    const Tensor output = layer->run(input);
    torch::autograd::backward({output}, {gradients[0]});
    return {input.grad(), Tensor()};
  }
};

}  // namespace

Tensor checkpointed(const std::function<Tensor(Tensor)>& layer, const Tensor& x) {
  return Checkpoint::apply(x, c10::make_intrusive<Layer>(layer));
}

}  // namespace headroom::nets

#include "tests/nets/layers.h"
#include "tests/nets/net.h"

namespace headroom::nets {
namespace {

struct RmsNorm : torch::nn::Module {
  explicit RmsNorm(std::int64_t width)
      : weight(register_parameter("weight", torch::ones({width}))) {}

  Tensor forward(const Tensor& x) {
    Tensor wide = x.to(torch::kFloat);
    Tensor h = wide.pow(2);
    h = h.mean(-1, true);
    h = h + 1e-6;
    h = torch::rsqrt(h);
    wide = wide * h;
    return weight * wide.to(x.scalar_type());
  }

  Tensor weight;
};

Tensor rotate(Tensor x, const Tensor& cos, const Tensor& sin) {
  Tensor h;
  {
    std::vector<Tensor> halves = x.chunk(2, -1);
    h = torch::cat({-halves[1], halves[0]}, -1);
  }
  h = h * sin;
  x = x * cos;
  return x + h;
}

class LlamaBlock : public torch::nn::Module {
 public:
  explicit LlamaBlock(const Sizes& c)
      : heads_(c["heads"]), groups_(c["groups"]), size_(c["width"] / c["heads"]) {
    const std::int64_t width = c["width"], hidden = c["hidden"];
    norm1_ = register_module("norm1", std::make_shared<RmsNorm>(width));
    norm2_ = register_module("norm2", std::make_shared<RmsNorm>(width));
    q_ = register_module("q", linear_without_bias(width, width));
    k_ = register_module("k", linear_without_bias(width, groups_ * size_));
    v_ = register_module("v", linear_without_bias(width, groups_ * size_));
    o_ = register_module("o", linear_without_bias(width, width));
    gate_ = register_module("gate", linear_without_bias(width, hidden));
    up_ = register_module("up", linear_without_bias(width, hidden));
    down_ = register_module("down", linear_without_bias(hidden, width));
  }

  Tensor forward(Tensor x, const Tensor& cos, const Tensor& sin) {
    const std::int64_t batch = x.size(0), length = x.size(1), width = x.size(2);
    const auto split = [&](const Tensor& t, std::int64_t heads) {
      return t.view({batch, length, heads, size_}).transpose(1, 2);
    };
    Tensor h = norm1_->forward(x);
    Tensor q = split(linear(h, q_), heads_);
    Tensor k = split(linear(h, k_), groups_);
    Tensor v = split(linear(h, v_), groups_);
    q = rotate(q, cos, sin);
    k = rotate(k, cos, sin);
    k = repeated(k);
    v = repeated(v);
    h = torch::scaled_dot_product_attention(q, k, v, {}, 0.0, true);
    q.reset(), k.reset(), v.reset();
    h = h.transpose(1, 2).reshape({batch, length, width});
    h = linear(h, o_);
    x = x + h;
    h = norm2_->forward(x);
    Tensor gate = linear(h, gate_);
    gate = torch::silu(gate);
    h = linear(h, up_);
    h = gate * h;
    gate.reset();
    h = linear(h, down_);
    return x + h;
  }

 private:
  [[nodiscard]] Tensor repeated(Tensor x) const {
    const std::int64_t batch = x.size(0), length = x.size(2);
    x = x.unsqueeze(2).expand({batch, groups_, heads_ / groups_, length, size_});
    return x.reshape({batch, heads_, length, size_});
  }

  const std::int64_t heads_, groups_, size_;
  std::shared_ptr<RmsNorm> norm1_, norm2_;
  torch::nn::Linear q_{nullptr}, k_{nullptr}, v_{nullptr}, o_{nullptr};
  torch::nn::Linear gate_{nullptr}, up_{nullptr}, down_{nullptr};
};

class Llama : public Net {
 public:
  explicit Llama(const Sizes& c) : size_(c["width"] / c["heads"]) {
    token_ = register_module("token", torch::nn::Embedding(c["vocabulary"], c["width"]));
    for (std::int64_t i = 0; i < c["layers"]; ++i)
      blocks_.push_back(
          register_module("block" + std::to_string(i), std::make_shared<LlamaBlock>(c)));
    norm_ = register_module("norm", std::make_shared<RmsNorm>(c["width"]));
    head_ = register_module("head", linear_without_bias(c["width"], c["vocabulary"]));
    const Input tokens{{c["batch"], c["length"]}, c["vocabulary"]};
    inputs_ = {tokens, tokens};
  }

  Tensor loss(const Batch& batch) override {
    const Tensor& tokens = batch[0];
    const auto numbers = torch::device(tokens.device()).dtype(torch::kFloat);
    Tensor x = token_(tokens);
    const Tensor places = torch::arange(tokens.size(1), numbers);
    Tensor rates = torch::arange(0, size_, 2, numbers);
    rates = torch::pow(10000.0, rates * (-1.0 / static_cast<double>(size_)));
    Tensor angles = torch::outer(places, rates);
    angles = torch::cat({angles, angles}, -1);
    const Tensor cos = angles.cos().to(x.scalar_type());
    const Tensor sin = angles.sin().to(x.scalar_type());
    for (const auto& block : blocks_) x = block->forward(x, cos, sin);
    x = norm_->forward(x);
    x = linear(x, head_);
    x = x.to(torch::kFloat);
    return torch::cross_entropy_loss(x.view({-1, x.size(-1)}), batch[1].view(-1));
  }

 private:
  const std::int64_t size_;
  torch::nn::Embedding token_{nullptr};
  std::vector<std::shared_ptr<LlamaBlock>> blocks_;
  std::shared_ptr<RmsNorm> norm_;
  torch::nn::Linear head_{nullptr};
};

}  // namespace

std::shared_ptr<Net> make_llama(const Sizes& sizes) {
  return std::make_shared<Llama>(sizes);
}

}  // namespace headroom::nets

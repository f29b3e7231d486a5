// Nets that look up, choose and scatter.
#include "tests/nets/layers.h"
#include "tests/nets/net.h"

namespace headroom::nets {
namespace {

// Tokens choose experts, each expert takes the tokens that want it most: shapes are fixed.
class Experts : public torch::nn::Module {
 public:
  explicit Experts(const Sizes& c) : experts_(c["experts"]), chosen_(c["chosen"]) {
    const std::int64_t width = c["width"];
    norm_ = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    router_ = register_module("router", torch::nn::Linear(width, experts_));
    up_ = register_parameter("up", torch::empty({experts_, width, 2 * width}));
    down_ = register_parameter("down", torch::empty({experts_, 2 * width, width}));
    torch::nn::init::normal_(up_, 0, 0.02);
    torch::nn::init::normal_(down_, 0, 0.02);
  }

  Tensor forward(const Tensor& x) {
    const std::int64_t capacity = x.size(0) * chosen_ / experts_;
    Tensor h = norm_(x);
    Tensor weights = linear(h, router_);
    weights = torch::softmax(weights, -1);
    {
      auto [best, which] = weights.topk(chosen_, -1);
      weights = torch::zeros_like(weights).scatter(1, which, best);
    }
    auto [share, index] = weights.t().topk(capacity, 1);
    index = index.reshape(-1);
    h = h.index_select(0, index);
    h = h.view({experts_, capacity, -1});
    h = torch::bmm(h, up_);
    h = torch::gelu(h);
    h = torch::bmm(h, down_);
    h = h * share.unsqueeze(-1);
    h = h.view({experts_ * capacity, -1});
    return x.index_add(0, index, h);
  }

 private:
  const std::int64_t experts_, chosen_;
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear router_{nullptr};
  Tensor up_, down_;
};

class Moe : public Net {
 public:
  explicit Moe(const Sizes& c) {
    token_ = register_module("token", torch::nn::Embedding(c["vocabulary"], c["width"]));
    for (std::int64_t i = 0; i < c["layers"]; ++i)
      layers_.push_back(register_module("layer" + std::to_string(i), std::make_shared<Experts>(c)));
    head_ = register_module("head", linear_without_bias(c["width"], c["vocabulary"]));
    const Input tokens{{c["batch"], c["length"]}, c["vocabulary"]};
    inputs_ = {tokens, tokens};
  }

  Tensor loss(const Batch& batch) override {
    Tensor x = token_(batch[0].view(-1));
    for (const auto& layer : layers_) x = layer->forward(x);
    x = linear(x, head_);
    return torch::cross_entropy_loss(x, batch[1].view(-1));
  }

 private:
  torch::nn::Embedding token_{nullptr};
  std::vector<std::shared_ptr<Experts>> layers_;
  torch::nn::Linear head_{nullptr};
};

class Text : public Net {
 public:
  explicit Text(const Sizes& c) {
    const std::int64_t width = c["width"], filters = c["filters"];
    token_ = register_module("token", torch::nn::Embedding(c["vocabulary"], width));
    bag_ = register_module(
        "bag", torch::nn::EmbeddingBag(
                   torch::nn::EmbeddingBagOptions(c["vocabulary"], width).mode(torch::kMean)));
    conv_ = register_module(
        "conv", torch::nn::Conv1d(torch::nn::Conv1dOptions(width, filters, 5).padding(2)));
    head_ = register_module("head", torch::nn::Linear(filters + width, c["classes"]));
    inputs_ = {{{c["batch"], c["length"]}, c["vocabulary"]}, {{c["batch"]}, c["classes"]}};
  }

  Tensor loss(const Batch& batch) override {
    Tensor x = token_(batch[0]);
    x = x.transpose(1, 2);
    x = conv_(x);
    x = torch::tanh(x);
    x = x.amax(-1);
    Tensor h = bag_(batch[0]);
    x = torch::cat({x, h}, -1);
    h.reset();
    x = linear(x, head_);
    return torch::cross_entropy_loss(x, batch[1]);
  }

 private:
  torch::nn::Embedding token_{nullptr};
  torch::nn::EmbeddingBag bag_{nullptr};
  torch::nn::Conv1d conv_{nullptr};
  torch::nn::Linear head_{nullptr};
};

}  // namespace

std::shared_ptr<Net> make_moe(const Sizes& sizes) {
  return std::make_shared<Moe>(sizes);
}
std::shared_ptr<Net> make_text(const Sizes& sizes) {
  return std::make_shared<Text>(sizes);
}

}  // namespace headroom::nets

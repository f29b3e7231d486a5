#include "tests/nets/layers.h"
#include "tests/nets/net.h"

namespace headroom::nets {
namespace {

class EncoderDecoder : public Net {
 public:
  explicit EncoderDecoder(const Sizes& c) {
    const std::int64_t width = c["width"], heads = c["heads"];
    token_ = register_module("token", torch::nn::Embedding(c["vocabulary"], width));
    place_ = register_module("place", torch::nn::Embedding(c["length"], width));
    for (std::int64_t i = 0; i < c["layers"]; ++i) {
      const std::string number = std::to_string(i);
      encoder_.push_back(register_module(
          "encoder" + number, std::make_shared<Block>(Block::Options{width, heads, false, 0})));
      decoder_.push_back(register_module("decoder" + number, std::make_shared<Block>(Block::Options{
                                                                 width, heads, true, 0, true})));
    }
    const auto norm = [&] { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})); };
    norm1_ = register_module("norm1", norm());
    norm2_ = register_module("norm2", norm());
    head_ = register_module("head", linear_without_bias(width, c["vocabulary"]));
    const Input tokens{{c["batch"], c["length"]}, c["vocabulary"]};
    const Input target{{c["batch"], c["target"]}, c["vocabulary"]};
    inputs_ = {tokens, target, target};
  }

  Tensor loss(const Batch& batch) override {
    Tensor memory = embedded(batch[0]);
    for (const auto& block : encoder_) memory = block->forward(memory);
    memory = norm1_(memory);
    Tensor x = embedded(batch[1]);
    for (const auto& block : decoder_) x = block->forward(x, memory);
    x = norm2_(x);
    x = linear(x, head_);
    return torch::cross_entropy_loss(x.view({-1, x.size(-1)}), batch[2].view(-1));
  }

 private:
  Tensor embedded(const Tensor& tokens) {
    const Tensor places =
        torch::arange(tokens.size(1), torch::device(tokens.device()).dtype(torch::kLong));
    const Tensor x = token_(tokens);
    const Tensor h = place_(places);
    return x + h;
  }

  torch::nn::Embedding token_{nullptr}, place_{nullptr};
  std::vector<std::shared_ptr<Block>> encoder_, decoder_;
  torch::nn::LayerNorm norm1_{nullptr}, norm2_{nullptr};
  torch::nn::Linear head_{nullptr};
};

}  // namespace

std::shared_ptr<Net> make_encoder_decoder(const Sizes& sizes) {
  return std::make_shared<EncoderDecoder>(sizes);
}

}  // namespace headroom::nets

#include "headroom/libtorch/on.h"
#include "tests/nets/layers.h"
#include "tests/nets/net.h"

namespace headroom::nets {
namespace {

class Gpt : public Net {
 public:
  Gpt(const Sizes& c, std::optional<c10::Device> second_half)
      : checkpointed_(c.optional("checkpointed") != 0) {
    const auto later = [&](const auto& make) {
      return second_half ? libtorch::on(*second_half, make) : make();
    };
    const std::int64_t width = c["width"], count = c["layers"];
    token_ = register_module("token", torch::nn::Embedding(c["vocabulary"], width));
    place_ = register_module("place", torch::nn::Embedding(c["length"], width));
    for (std::int64_t i = 0; i < count; ++i) {
      const auto make = [&] {
        return std::make_shared<Block>(
            Block::Options{width, c["heads"], true, c.optional("dropout")});
      };
      blocks_.push_back(
          register_module("block" + std::to_string(i), i >= count / 2 ? later(make) : make()));
    }
    norm_ = register_module(
        "norm", later([&] { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})); }));
    const bool tied = c.optional("tied") != 0;
    head_ = tied ? token_->weight
                 : register_parameter("head", later([&] {
                                        return linear_without_bias(width, c["vocabulary"])->weight;
                                      }));
    const Input tokens{{c["batch"], c["length"]}, c["vocabulary"]};
    inputs_ = {tokens, tokens};
  }

  Tensor loss(const Batch& batch) override {
    const Tensor& tokens = batch[0];
    const Tensor places =
        torch::arange(tokens.size(1), torch::device(tokens.device()).dtype(torch::kLong));
    Tensor x = token_(tokens);
    Tensor h = place_(places);
    x = x + h;
    h.reset();
    for (const auto& block : blocks_) {
      x = x.to(block->device());
      x = checkpointed_ ? checkpointed([&](Tensor y) { return block->forward(std::move(y)); }, x)
                        : block->forward(x);
    }
    x = norm_(x);
    x = torch::linear(x, head_);
    return torch::cross_entropy_loss(x.view({-1, x.size(-1)}), batch[1].to(x.device()).view(-1));
  }

 private:
  const bool checkpointed_;
  torch::nn::Embedding token_{nullptr}, place_{nullptr};
  std::vector<std::shared_ptr<Block>> blocks_;
  torch::nn::LayerNorm norm_{nullptr};
  Tensor head_;
};

}  // namespace

std::shared_ptr<Net> make_gpt(const Sizes& sizes, std::optional<c10::Device> second_half) {
  return std::make_shared<Gpt>(sizes, second_half);
}

}  // namespace headroom::nets

#include "headroom/libtorch/on.h"
#include "tests/nets/layers.h"
#include "tests/nets/net.h"

namespace headroom::nets {
namespace {

class Mlp : public Net {
 public:
  Mlp(const Sizes& c, std::optional<c10::Device> second_half) {
    const std::int64_t count = c["layers"];
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t in = i == 0 ? c["input"] : c["width"];
      const std::int64_t out = i + 1 == count ? c["classes"] : c["width"];
      const auto make = [&] { return torch::nn::Linear(in, out); };
      layers_.push_back(register_module(
          "layer" + std::to_string(i),
          second_half && i >= count / 2 ? libtorch::on(*second_half, make) : make()));
    }
    inputs_ = {{{c["batch"], c["input"]}}, {{c["batch"]}, c["classes"]}};
  }

  Tensor loss(const Batch& batch) override {
    Tensor x = batch[0];
    for (std::size_t i = 0; i + 1 < layers_.size(); ++i) {
      x = x.to(layers_[i]->weight.device());
      Tensor h = linear(x, layers_[i]);
      x = torch::relu(h);
    }
    x = linear(x, layers_.back());
    return torch::cross_entropy_loss(x, batch[1].to(x.device()));
  }

 private:
  std::vector<torch::nn::Linear> layers_;
};

}  // namespace

std::shared_ptr<Net> make_mlp(const Sizes& sizes, std::optional<c10::Device> second_half) {
  return std::make_shared<Mlp>(sizes, second_half);
}

}  // namespace headroom::nets

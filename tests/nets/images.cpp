#include "tests/nets/layers.h"
#include "tests/nets/net.h"

namespace headroom::nets {
namespace {

using torch::nn::BatchNorm2d;
using torch::nn::Conv2d;
using torch::nn::Conv2dOptions;

Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t size, std::int64_t stride,
                   std::int64_t padding, bool bias = false) {
  return Conv2d(Conv2dOptions(in, out, size).stride(stride).padding(padding).bias(bias));
}

class ResidualBlock : public torch::nn::Module {
 public:
  ResidualBlock(std::int64_t before, std::int64_t width, std::int64_t stride) {
    conv1_ = register_module("conv1", convolution(before, width, 3, stride, 1));
    norm1_ = register_module("norm1", BatchNorm2d(width));
    conv2_ = register_module("conv2", convolution(width, width, 3, 1, 1));
    norm2_ = register_module("norm2", BatchNorm2d(width));
    if (before == width && stride == 1) return;
    conv3_ = register_module("conv3", convolution(before, width, 1, stride, 0));
    norm3_ = register_module("norm3", BatchNorm2d(width));
  }

  Tensor forward(Tensor x) {
    Tensor h = conv1_(x);
    h = norm1_(h);
    h = torch::relu(h);
    h = conv2_(h);
    h = norm2_(h);
    if (!conv3_.is_empty()) {
      x = conv3_(x);
      x = norm3_(x);
    }
    h = h + x;
    return torch::relu(h);
  }

 private:
  Conv2d conv1_{nullptr}, conv2_{nullptr}, conv3_{nullptr};
  BatchNorm2d norm1_{nullptr}, norm2_{nullptr}, norm3_{nullptr};
};

class ResNet : public Net {
 public:
  explicit ResNet(const Sizes& c) {
    std::int64_t width = c["width"], before = width;
    conv_ = register_module("conv", convolution(3, width, 7, 2, 3));
    norm_ = register_module("norm", BatchNorm2d(width));
    for (std::int64_t stage = 0; stage < c["stages"]; ++stage, width *= 2)
      for (std::int64_t i = 0; i < c["blocks"]; ++i, before = width)
        blocks_.push_back(register_module(
            "block" + std::to_string(blocks_.size()),
            std::make_shared<ResidualBlock>(before, width, stage > 0 && i == 0 ? 2 : 1)));
    head_ = register_module("head", torch::nn::Linear(before, c["classes"]));
    inputs_ = {{{c["batch"], 3, c["image"], c["image"]}}, {{c["batch"]}, c["classes"]}};
  }

  Tensor loss(const Batch& batch) override {
    Tensor x = conv_(batch[0]);
    x = norm_(x);
    x = torch::relu(x);
    x = torch::max_pool2d(x, 3, 2, 1);
    for (const auto& block : blocks_) x = block->forward(x);
    x = torch::adaptive_avg_pool2d(x, {1, 1});
    x = x.flatten(1);
    x = linear(x, head_);
    return torch::cross_entropy_loss(x, batch[1]);
  }

 private:
  Conv2d conv_{nullptr};
  BatchNorm2d norm_{nullptr};
  std::vector<std::shared_ptr<ResidualBlock>> blocks_;
  torch::nn::Linear head_{nullptr};
};

class Vit : public Net {
 public:
  explicit Vit(const Sizes& c) {
    const std::int64_t width = c["width"], patch = c["patch"];
    const std::int64_t across = c["image"] / patch;
    patches_ = register_module("patches", convolution(3, width, patch, patch, 0, true));
    first_ = register_parameter("first", torch::zeros({1, 1, width}));
    place_ = register_parameter("place", torch::zeros({1, across * across + 1, width}));
    for (std::int64_t i = 0; i < c["layers"]; ++i)
      blocks_.push_back(register_module(
          "block" + std::to_string(i), std::make_shared<Block>(Block::Options{width, c["heads"]})));
    norm_ = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    head_ = register_module("head", torch::nn::Linear(width, c["classes"]));
    inputs_ = {{{c["batch"], 3, c["image"], c["image"]}}, {{c["batch"]}, c["classes"]}};
  }

  Tensor loss(const Batch& batch) override {
    Tensor x = patches_(batch[0]);
    x = x.flatten(2).transpose(1, 2);
    x = torch::cat({first_.expand({x.size(0), -1, -1}), x}, 1);
    x = x + place_;
    for (const auto& block : blocks_) x = block->forward(x);
    x = norm_(x);
    x = x.select(1, 0);
    x = linear(x, head_);
    return torch::cross_entropy_loss(x, batch[1]);
  }

 private:
  Conv2d patches_{nullptr};
  Tensor first_, place_;
  std::vector<std::shared_ptr<Block>> blocks_;
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear head_{nullptr};
};

class Autoencoder : public Net {
 public:
  explicit Autoencoder(const Sizes& c) {
    const std::int64_t width = c["width"], groups = c["groups"];
    conv1_ = register_module("conv1", convolution(3, width, 3, 1, 1, true));
    norm1_ = register_module("norm1", torch::nn::GroupNorm(groups, width));
    conv2_ = register_module("conv2", convolution(width, 2 * width, 3, 2, 1, true));
    norm2_ = register_module("norm2", torch::nn::GroupNorm(groups, 2 * width));
    back_ = register_module(
        "back", torch::nn::ConvTranspose2d(
                    torch::nn::ConvTranspose2dOptions(2 * width, width, 4).stride(2).padding(1)));
    conv3_ = register_module("conv3", convolution(width, 3, 3, 1, 1, true));
    const Input image{{c["batch"], 3, c["image"], c["image"]}};
    inputs_ = {image, image};
  }

  Tensor loss(const Batch& batch) override {
    Tensor x = conv1_(batch[0]);
    x = norm1_(x);
    Tensor kept = torch::silu(x);
    x = conv2_(kept);
    x = norm2_(x);
    x = torch::silu(x);
    x = back_(x);
    x = x + kept;
    kept.reset();
    x = torch::upsample_nearest2d(x, std::nullopt, {{0.5, 0.5}});
    x = torch::upsample_nearest2d(x, std::nullopt, {{2.0, 2.0}});
    x = conv3_(x);
    return torch::mse_loss(x, batch[1]);
  }

 private:
  Conv2d conv1_{nullptr}, conv2_{nullptr}, conv3_{nullptr};
  torch::nn::GroupNorm norm1_{nullptr}, norm2_{nullptr};
  torch::nn::ConvTranspose2d back_{nullptr};
};

}  // namespace

std::shared_ptr<Net> make_resnet(const Sizes& sizes) {
  return std::make_shared<ResNet>(sizes);
}
std::shared_ptr<Net> make_vit(const Sizes& sizes) {
  return std::make_shared<Vit>(sizes);
}
std::shared_ptr<Net> make_autoencoder(const Sizes& sizes) {
  return std::make_shared<Autoencoder>(sizes);
}

}  // namespace headroom::nets

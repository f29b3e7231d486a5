// ResNet (modeling_resnet.py of transformers) with a head for image classification.
//
// Holds the tensors that Python's frames hold: with a frozen backbone nothing else holds them.
#include <ATen/ATen.h>

#include "headroom/model/shapes.h"
#include "headroom/models/detail/images.h"

namespace headroom::models::detail {
namespace resnet {
namespace {

using model::ModelConfig;

// Runs no activation if `function` is empty.
class ConvLayer : public torch::nn::Module {
 public:
  ConvLayer(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
            nn::Activation function)
      : convolution_(child<nn::Conv2d>(
            *this, "convolution", in, out,
            nn::Conv2d::Options{
                .kernel = kernel, .stride = stride, .padding = kernel / 2, .with_bias = false})),
        normalization_(child<nn::BatchNorm2d>(*this, "normalization", out)),
        activation_(std::move(function)) {}

  Tensor operator()(const Tensor& x) const {
    Tensor states = (*convolution_)(x);
    states = (*normalization_)(states);
    if (activation_) states = activation_(states);
    return states;
  }

 private:
  const std::shared_ptr<nn::Conv2d> convolution_;
  const std::shared_ptr<nn::BatchNorm2d> normalization_;
  const nn::Activation activation_;
};

using Shape = model::ResnetShape;

// Two convolutions of 3 x 3, or a bottleneck of three, with a shortcut around them.
class Layer : public torch::nn::Module {
 public:
  Layer(const Shape& shape, std::int64_t in, std::int64_t out, std::int64_t stride)
      : activation_(nn::activation(shape.function)) {
    // A shortcut is a convolution and its norm.
    if (in != out || stride != 1)
      shortcut_ = child<ConvLayer>(*this, "shortcut", in, out, 1, stride, nullptr);
    layer_ = child<nn::List<ConvLayer>>(*this, "layer");
    const auto add = [&](auto... arguments) {
      layer_->add(std::make_shared<ConvLayer>(arguments...));
    };
    const nn::Activation relu = nn::activation("relu"), none;
    if (!shape.bottleneck) {
      add(in, out, 3, stride, relu);
      add(out, out, 3, 1, none);
      return;
    }
    const std::int64_t reduced = out / 4;
    const bool at_once = shape.downsample_in_bottleneck;
    add(in, reduced, 1, at_once ? stride : 1, relu);
    add(reduced, reduced, 3, at_once ? 1 : stride, relu);
    add(reduced, out, 1, 1, none);
  }

  Tensor operator()(const Tensor& x) const {
    Tensor states = through(*layer_, x);
    const Tensor residual = shortcut_ ? (*shortcut_)(x) : x;
    states.add_(residual);
    states = activation_(states);
    return states;
  }

 private:
  const nn::Activation activation_;
  std::shared_ptr<ConvLayer> shortcut_;
  std::shared_ptr<nn::List<ConvLayer>> layer_;
};

class Stage : public torch::nn::Module {
 public:
  Stage(const Shape& shape, std::int64_t in, std::size_t stage, std::size_t layers_before,
        const Here& here)
      : layers_before_(layers_before), layers_(child<nn::List<Layer>>(*this, "layers")) {
    const bool downsamples = stage > 0 || shape.downsample_in_first_stage;
    const std::int64_t out = shape.widths[stage], stride = downsamples ? 2 : 1;
    for (std::int64_t i = 0; i < shape.depths[stage]; ++i)
      here.add(*layers_, static_cast<std::int64_t>(layers_before) + i, [&] {
        return i == 0 ? std::make_shared<Layer>(shape, in, out, stride)
                      : std::make_shared<Layer>(shape, out, out, 1);
      });
  }

  Tensor operator()(const Tensor& x, const Net& net) const {
    return through_stage(net, *layers_, layers_before_, x);
  }

 private:
  const std::size_t layers_before_;
  const std::shared_ptr<nn::List<Layer>> layers_;
};

class Base : public torch::nn::Module {
 public:
  Base(const ModelConfig& config, const Here& here) {
    const Shape shape(config);
    if (here.begins())
      embedder_ =
          child<ConvLayer>(*child<torch::nn::Module>(*this, "embedder"), "embedder", shape.channels,
                           shape.embedding, 7, 2, nn::activation(shape.function));
    stages_ = child<nn::List<Stage>>(*child<torch::nn::Module>(*this, "encoder"), "stages");
    width_ = shape.embedding;
    std::size_t layers = 0;
    for (std::size_t i = 0; i < shape.depths.size(); ++i) {
      stages_->add(std::make_shared<Stage>(shape, width_, i, layers, here));
      width_ = shape.widths[i];
      layers += static_cast<std::size_t>(shape.depths[i]);
    }
  }

  std::pair<Tensor, Tensor> operator()(const Net& net, const Batch& batch) const {
    const bool begins = net.here().begins();
    Tensor embedded = begins ? (*embedder_)(batch.pixels) : batch.given.at(0);
    if (begins) embedded = at::max_pool2d(embedded, 3, 2, 1);
    const Tensor states = through(*stages_, embedded, net);
    if (!net.here().ends()) return {states, {}};
    return {states, at::adaptive_avg_pool2d(states, {1, 1})};
  }
  [[nodiscard]] std::int64_t width() const { return width_; }

 private:
  std::shared_ptr<ConvLayer> embedder_;
  std::shared_ptr<nn::List<Stage>> stages_;
  std::int64_t width_;
};

// In Python, a sequence whose second member has the weights.
class Classifier : public torch::nn::Module {
 public:
  Classifier(std::int64_t in, std::int64_t out) : linear_(child<nn::Linear>(*this, "1", in, out)) {}
  Tensor operator()(const Tensor& x) const { return (*linear_)(x.flatten(1)); }

 private:
  const std::shared_ptr<nn::Linear> linear_;
};

}  // namespace
}  // namespace resnet

Build resnet_family() {
  return [](const model::ModelConfig& config, Task, const Settings& settings) {
    return std::make_shared<ConvolutionalClassifier<resnet::Base, resnet::Classifier>>(config,
                                                                                       settings);
  };
}

}  // namespace headroom::models::detail

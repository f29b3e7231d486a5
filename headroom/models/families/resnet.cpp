// ResNet (modeling_resnet.py of transformers 4.57.6) with a head for image classification.
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
    Tensor states = x;
    for (const auto& convolution : *layer_) states = (*convolution)(states);
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
  Stage(const Shape& shape, std::int64_t in, std::int64_t out, std::int64_t stride,
        std::int64_t depth)
      : layers_(child<nn::List<Layer>>(*this, "layers")) {
    layers_->add(std::make_shared<Layer>(shape, in, out, stride));
    for (std::int64_t i = 1; i < depth; ++i)
      layers_->add(std::make_shared<Layer>(shape, out, out, 1));
  }

  Tensor operator()(const Tensor& x) const {
    Tensor states = x;
    for (const auto& layer : *layers_) states = (*layer)(states);
    return states;
  }

 private:
  const std::shared_ptr<nn::List<Layer>> layers_;
};

class Embedder : public torch::nn::Module {
 public:
  explicit Embedder(const Shape& shape)
      : embedder_(child<ConvLayer>(*this, "embedder", shape.channels, shape.embedding, 7, 2,
                                   nn::activation(shape.function))) {}

  Tensor operator()(const Tensor& pixels) const {
    Tensor embedding = (*embedder_)(pixels);
    embedding = at::max_pool2d(embedding, 3, 2, 1);
    return embedding;
  }

 private:
  const std::shared_ptr<ConvLayer> embedder_;
};

class Encoder : public torch::nn::Module {
 public:
  explicit Encoder(const Shape& shape) : stages_(child<nn::List<Stage>>(*this, "stages")) {
    std::int64_t in = shape.embedding;
    for (std::size_t i = 0; i < shape.depths.size(); ++i) {
      const bool downsamples = i > 0 || shape.downsample_in_first_stage;
      stages_->add(std::make_shared<Stage>(shape, in, shape.widths[i], downsamples ? 2 : 1,
                                           shape.depths[i]));
      in = shape.widths[i];
    }
  }

  Tensor operator()(const Tensor& x) const {
    Tensor states = x;
    for (const auto& stage : *stages_) states = (*stage)(states);
    return states;
  }

 private:
  const std::shared_ptr<nn::List<Stage>> stages_;
};

class Base : public torch::nn::Module {
 public:
  explicit Base(const Shape& shape)
      : embedder(child<Embedder>(*this, "embedder", shape)),
        encoder(child<Encoder>(*this, "encoder", shape)) {}

  const std::shared_ptr<Embedder> embedder;
  const std::shared_ptr<Encoder> encoder;
};

// In Python, a sequence whose second member has the weights.
class Classifier : public torch::nn::Module {
 public:
  Classifier(std::int64_t in, std::int64_t out) : linear_(child<nn::Linear>(*this, "1", in, out)) {}
  Tensor operator()(const Tensor& x) const { return (*linear_)(x.flatten(1)); }

 private:
  const std::shared_ptr<nn::Linear> linear_;
};

class ImageClassifier : public Net {
 public:
  ImageClassifier(const ModelConfig& config, const Settings& settings)
      : Net(config, Task::image_classification, settings),
        base_(child<Base>(*this, "resnet", Shape(config))),
        classifier_(
            child<Classifier>(*this, "classifier", Shape(config).widths.back(), config.labels())) {}

  Output run(const Batch& batch) override {
    check_images(batch, config().at_least_1("num_channels"));
    const auto [last, pooled] = encoded(batch.pixels);
    return classified((*classifier_)(pooled), batch, config());
  }

 private:
  // The last states, which transformers' output holds until the loss is computed, and their means.
  std::pair<Tensor, Tensor> encoded(const Tensor& pixels) const {
    const Tensor embedded = (*base_->embedder)(pixels);
    const Tensor states = (*base_->encoder)(embedded);
    return {states, at::adaptive_avg_pool2d(states, {1, 1})};
  }

  const std::shared_ptr<Base> base_;
  const std::shared_ptr<Classifier> classifier_;
};

}  // namespace
}  // namespace resnet

Build resnet_family() {
  return [](const model::ModelConfig& config, Task, const Settings& settings) {
    return std::make_shared<resnet::ImageClassifier>(config, settings);
  };
}

}  // namespace headroom::models::detail

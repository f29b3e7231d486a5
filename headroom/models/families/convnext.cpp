// ConvNeXt (modeling_convnext.py of transformers) with a head for image classification.
#include <ATen/ATen.h>

#include <cmath>
#include <numeric>

#include "headroom/model/shapes.h"
#include "headroom/models/detail/images.h"

namespace headroom::models::detail {
namespace convnext {
namespace {

using model::ModelConfig;
using nn::Conv2d;
using nn::LayerNorm;
using nn::Linear;

// The epsilon of every norm except the last, regardless of the config.
constexpr double kEpsilon = 1e-6;

using Shape = model::ConvnextShape;

// The share of rows for which a layer is skipped (stochastic depth). It grows linearly from zero at
// the first layer. Computed in float from the nearer end, like torch.linspace.
double drop_share(const Shape& shape, std::int64_t layer) {
  const std::int64_t layers = std::accumulate(shape.depths.begin(), shape.depths.end(), 0LL);
  if (layers == 1) return 0;
  const float most = static_cast<float>(shape.drop_path);
  const float step = most / static_cast<float>(layers - 1);
  if (layer < layers / 2) return step * static_cast<float>(layer);
  return most - step * static_cast<float>(layers - layer - 1);
}

// Normalises over the channels of [rows, channels, height, width].
class ChannelNorm : public LayerNorm {
 public:
  explicit ChannelNorm(std::int64_t width) : LayerNorm(width, kEpsilon) {}

  Tensor operator()(Tensor x) const {
    x = x.permute({0, 2, 3, 1});
    x = LayerNorm::operator()(x);
    return x.permute({0, 3, 1, 2});
  }
};

Tensor drop_path(const Tensor& x, double share) {
  const double kept = 1 - share;
  Tensor chosen = at::rand({x.size(0), 1, 1, 1}, x.options());
  chosen = kept + chosen;
  chosen.floor_();
  const Tensor scaled = x.div(kept);
  return scaled * chosen;
}

class Layer : public torch::nn::Module {
 public:
  Layer(const Shape& shape, std::int64_t width, double dropped)
      : activation_(nn::activation(shape.function)), dropped_(dropped) {
    if (shape.layer_scale > 0)
      scale_ = register_parameter("layer_scale_parameter", at::empty({width}));
    depthwise_ =
        child<Conv2d>(*this, "dwconv", width, width,
                      Conv2d::Options{.kernel = 7, .stride = 1, .padding = 3, .groups = width});
    norm_ = child<LayerNorm>(*this, "layernorm", width, kEpsilon);
    widen_ = child<Linear>(*this, "pwconv1", width, 4 * width);
    narrow_ = child<Linear>(*this, "pwconv2", 4 * width, width);
  }

  Tensor operator()(const Tensor& x) const {
    Tensor states = (*depthwise_)(x);
    states = states.permute({0, 2, 3, 1});
    states = (*norm_)(states);
    states = (*widen_)(states);
    states = activation_(states);
    states = (*narrow_)(states);
    if (scale_.defined()) states = scale_ * states;
    states = states.permute({0, 3, 1, 2});
    if (dropped_ == 0 || !is_training()) return x + states;
    return x + drop_path(states, dropped_);
  }

 private:
  const nn::Activation activation_;
  const double dropped_;
  Tensor scale_;
  std::shared_ptr<Conv2d> depthwise_;
  std::shared_ptr<LayerNorm> norm_;
  std::shared_ptr<Linear> widen_, narrow_;
};

// A norm and a convolution that halves the sides.
class Downsampling : public torch::nn::Module {
 public:
  Downsampling(std::int64_t in, std::int64_t out)
      : norm_(child<ChannelNorm>(*this, "0", in)),
        convolution_(
            child<Conv2d>(*this, "1", in, out, Conv2d::Options{.kernel = 2, .stride = 2})) {}

  Tensor operator()(Tensor x) const {
    x = (*norm_)(x);
    return (*convolution_)(x);
  }

 private:
  const std::shared_ptr<ChannelNorm> norm_;
  const std::shared_ptr<Conv2d> convolution_;
};

class Stage : public torch::nn::Module {
 public:
  Stage(const Shape& shape, std::size_t stage, std::int64_t layers_before, const Here& here)
      : layers_before_(layers_before) {
    const std::int64_t width = shape.widths[stage];
    if (stage > 0 && here.has(layers_before))
      downsampling_ =
          child<Downsampling>(*this, "downsampling_layer", shape.widths[stage - 1], width);
    layers_ = child<nn::List<Layer>>(*this, "layers");
    for (std::int64_t i = 0; i < shape.depths[stage]; ++i)
      here.add(*layers_, layers_before + i, [&] {
        return std::make_shared<Layer>(shape, width, drop_share(shape, layers_before + i));
      });
  }

  Tensor operator()(const Tensor& x, const Net& net) const {
    Tensor states = x;
    if (downsampling_) states = (*downsampling_)(states);
    return through_stage(net, *layers_, static_cast<std::size_t>(layers_before_),
                         std::move(states));
  }

 private:
  const std::int64_t layers_before_;
  std::shared_ptr<Downsampling> downsampling_;
  std::shared_ptr<nn::List<Layer>> layers_;
};

class Base : public torch::nn::Module {
 public:
  Base(const ModelConfig& config, const Here& here) : width_(Shape(config).widths.back()) {
    const Shape shape(config);
    if (here.begins()) {
      const auto embeddings = child<torch::nn::Module>(*this, "embeddings");
      patches_ =
          child<Conv2d>(*embeddings, "patch_embeddings", shape.channels, shape.widths.front(),
                        Conv2d::Options{.kernel = shape.patch, .stride = shape.patch});
      embedding_norm_ = child<ChannelNorm>(*embeddings, "layernorm", shape.widths.front());
    }
    stages_ = child<nn::List<Stage>>(*child<torch::nn::Module>(*this, "encoder"), "stages");
    std::int64_t layers = 0;
    for (std::size_t i = 0; i < shape.depths.size(); ++i) {
      stages_->add(std::make_shared<Stage>(shape, i, layers, here));
      layers += shape.depths[i];
    }
    if (here.ends()) norm_ = child<LayerNorm>(*this, "layernorm", width_, shape.epsilon);
  }

  std::pair<Tensor, Tensor> operator()(const Net& net, const Batch& batch) const {
    const bool begins = net.here().begins();
    Tensor embedded = begins ? (*patches_)(batch.pixels) : batch.given.at(0);
    if (begins) embedded = (*embedding_norm_)(embedded);
    const Tensor states = through(*stages_, embedded, net);
    if (!net.here().ends()) return {states, {}};
    return {states, (*norm_)(states.mean({-2, -1}))};
  }
  [[nodiscard]] std::int64_t width() const { return width_; }

 private:
  const std::int64_t width_;
  std::shared_ptr<Conv2d> patches_;
  std::shared_ptr<ChannelNorm> embedding_norm_;
  std::shared_ptr<nn::List<Stage>> stages_;
  std::shared_ptr<LayerNorm> norm_;
};

}  // namespace
}  // namespace convnext

Build convnext_family() {
  return [](const model::ModelConfig& config, Task, const Settings& settings) {
    return std::make_shared<ConvolutionalClassifier<convnext::Base>>(config, settings);
  };
}

}  // namespace headroom::models::detail

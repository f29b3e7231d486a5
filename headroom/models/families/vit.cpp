// ViT and DeiT (modeling_vit.py and modeling_deit.py of transformers) with a head for image
// classification. DeiT has one more token and position, which this head does not use.
#include <ATen/ATen.h>

#include <cmath>

#include "headroom/model/shapes.h"
#include "headroom/models/detail/attention.h"
#include "headroom/models/detail/images.h"

namespace headroom::models::detail {
namespace vit {
namespace {

using model::ModelConfig;
using nn::LayerNorm;
using nn::Linear;

using Shape = model::VitShape;

class Embeddings : public torch::nn::Module {
 public:
  explicit Embeddings(const Shape& shape) : shape_(shape), class_token_(token("cls_token")) {
    if (shape.extra == 2) distillation_token_ = token("distillation_token");
    positions_ =
        register_parameter("position_embeddings", at::empty({1, shape.positions(), shape.width}));
    patches_ = child<nn::Conv2d>(*child<torch::nn::Module>(*this, "patch_embeddings"), "projection",
                                 shape.channels, shape.width,
                                 nn::Conv2d::Options{.kernel = shape.patch, .stride = shape.patch});
  }

  Tensor operator()(const Tensor& pixels) const {
    Tensor states = (*patches_)(pixels).flatten(2).transpose(1, 2);
    const auto for_each_row = [&](const Tensor& of) { return of.expand({pixels.size(0), -1, -1}); };
    if (shape_.extra == 2)
      states = at::cat({for_each_row(class_token_), for_each_row(distillation_token_), states}, 1);
    else
      states = at::cat({for_each_row(class_token_), states}, 1);
    states = states + positions_;
    return at::dropout(states, shape_.dropout, is_training());
  }

  [[nodiscard]] at::ScalarType type() const { return class_token_.scalar_type(); }

 private:
  Tensor token(const char* name) {
    return register_parameter(name, at::empty({1, 1, shape_.width}));
  }

  const Shape shape_;
  Tensor class_token_, distillation_token_, positions_;
  std::shared_ptr<nn::Conv2d> patches_;
};

class SelfAttention : public torch::nn::Module {
 public:
  explicit SelfAttention(const Shape& shape)
      : shape_(shape),
        query_(child<Linear>(*this, "query", shape.width, shape.width, shape.qkv_bias)),
        key_(child<Linear>(*this, "key", shape.width, shape.width, shape.qkv_bias)),
        value_(child<Linear>(*this, "value", shape.width, shape.width, shape.qkv_bias)) {}

  Attended operator()(const Tensor& states, const LayerInputs& with) const {
    const std::int64_t width = shape_.width / shape_.heads;
    const Tensor k = heads_of((*key_)(states), width);
    const Tensor v = heads_of((*value_)(states), width);
    const Tensor q = heads_of((*query_)(states), width);
    AttentionOptions options;
    options.dropout = is_training() ? shape_.attention_dropout : 0;
    options.scaling = 1 / std::sqrt(static_cast<double>(width));
    options.is_causal = false;
    Attended seen = attended(with.attention, q, k, v, {}, options);
    seen.out = seen.out.reshape({states.size(0), states.size(1), shape_.width});
    return seen;
  }

 private:
  const Shape shape_;
  const std::shared_ptr<Linear> query_, key_, value_;
};

// A linear layer under its name on the hub, and dropout.
class Dense : public torch::nn::Module {
 public:
  Dense(std::int64_t in, std::int64_t out, double dropped = 0)
      : dense_(child<Linear>(*this, "dense", in, out)), dropped_(dropped) {}

  Tensor operator()(const Tensor& x) const {
    return at::dropout((*dense_)(x), dropped_, is_training());
  }

 private:
  const std::shared_ptr<Linear> dense_;
  const double dropped_;
};

class AttentionBlock : public torch::nn::Module {
 public:
  explicit AttentionBlock(const Shape& shape)
      : attention_(child<SelfAttention>(*this, "attention", shape)),
        output_(child<Dense>(*this, "output", shape.width, shape.width, shape.dropout)) {}

  Attended operator()(const Tensor& states, const LayerInputs& with) const {
    Attended attended = (*attention_)(states, with);
    if (!with.newest()) attended.weights.reset();
    attended.out = (*output_)(attended.out);
    return attended;
  }

 private:
  const std::shared_ptr<SelfAttention> attention_;
  const std::shared_ptr<Dense> output_;
};

class Layer : public torch::nn::Module {
 public:
  Layer(const Shape& shape, nn::Activation function)
      : attention_(child<AttentionBlock>(*this, "attention", shape)),
        intermediate_(child<Dense>(*this, "intermediate", shape.width, shape.inner)),
        output_(child<Dense>(*this, "output", shape.inner, shape.width, shape.dropout)),
        norm_before_(child<LayerNorm>(*this, "layernorm_before", shape.width, shape.epsilon)),
        norm_after_(child<LayerNorm>(*this, "layernorm_after", shape.width, shape.epsilon)),
        activation_(std::move(function)) {}

  // Variables live as long as in Python: in 4.57, `normed` and what attention returns to the end;
  // now the weights of attention.
  Tensor operator()(const Tensor& x, const LayerInputs& with) const {
    Tensor normed = (*norm_before_)(x);
    Attended attended = (*attention_)(normed, with);
    if (with.newest()) normed.reset();
    const Tensor states = attended.out + x;
    if (with.newest()) attended.out.reset();
    Tensor out = (*norm_after_)(states);
    out = widened(out);
    return feed_back(out, states);
  }

 private:
  Tensor widened(const Tensor& states) const {
    Tensor wide = (*intermediate_)(states);
    wide = activation_(wide);
    return wide;
  }
  Tensor feed_back(const Tensor& wide, const Tensor& residual) const {
    const Tensor narrow = (*output_)(wide);
    return narrow + residual;
  }

  const std::shared_ptr<AttentionBlock> attention_;
  const std::shared_ptr<Dense> intermediate_, output_;
  const std::shared_ptr<LayerNorm> norm_before_, norm_after_;
  const nn::Activation activation_;
};

class ImageClassifier : public Net {
 public:
  ImageClassifier(const ModelConfig& config, const Settings& settings)
      : Net(config, Task::image_classification, settings), shape_(config) {
    const auto base = child<torch::nn::Module>(*this, config.type());
    if (here().begins()) embeddings_ = child<Embeddings>(*base, "embeddings", shape_);
    layers_ = child<nn::List<Layer>>(*child<torch::nn::Module>(*base, "encoder"), "layer");
    const nn::Activation function = nn::activation(shape_.function);
    for (std::int64_t i = 0; i < shape_.layers; ++i)
      here().add(*layers_, i, [&] { return std::make_shared<Layer>(shape_, function); });
    if (!here().ends()) return;
    norm_ = child<LayerNorm>(*base, "layernorm", shape_.width, shape_.epsilon);
    classifier_ = child<Linear>(*this, "classifier", shape_.width, config.labels());
  }

  Output run(const Batch& batch) override {
    if (here().begins()) check_images(batch, shape_.channels, shape_.side);
    const Tensor states = encoded(batch);
    if (!here().ends()) return handing_on(states);
    return classified((*classifier_)(states.select(1, 0)), batch);
  }

 private:
  Tensor encoded(const Batch& batch) const {
    const bool begins = here().begins();
    const Tensor images = begins ? batch.pixels.to(embeddings_->type()) : Tensor();
    const Tensor embedded = begins ? (*embeddings_)(images) : batch.given.at(0);
    LayerInputs with;
    with.attention = settings().attention;
    with.transformers = settings().transformers;
    const Tensor states =
        through_layers(*this, *layers_, std::make_shared<const LayerInputs>(with), embedded);
    return here().ends() ? (*norm_)(states) : states;
  }

  const Shape shape_;
  std::shared_ptr<Embeddings> embeddings_;
  std::shared_ptr<nn::List<Layer>> layers_;
  std::shared_ptr<LayerNorm> norm_;
  std::shared_ptr<Linear> classifier_;
};

}  // namespace
}  // namespace vit

Build vit_family() {
  return [](const model::ModelConfig& config, Task, const Settings& settings) {
    return std::make_shared<vit::ImageClassifier>(config, settings);
  };
}

}  // namespace headroom::models::detail

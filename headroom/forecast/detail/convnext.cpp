// ConvNeXt: models/families/convnext.cpp.
#include <string>
#include <utility>
#include <vector>

#include "headroom/forecast/detail/image_networks.h"
#include "headroom/model/shapes.h"

namespace headroom::forecast::detail {
namespace {

class Convnext {
 public:
  Convnext(Network& net, const model::ConvnextShape& shape) : net_(net), shape_(shape) {}

  Value embedded(const Value& pixels, Image& image) const {
    const Value patches =
        convolved(net_, pixels, image,
                  {.out = shape_.widths[0], .kernel = shape_.patch, .stride = shape_.patch}, true);
    return channel_norm(patches, shape_.widths[0]);
  }

  // Layers; before them, but not in the first stage, a norm and a convolution that halves the
  // sides. `first`: the number of the stage's first layer. Layers may run again in the backward
  // pass.
  Value stage(std::size_t i, Value states, Image& image, std::int64_t first) const {
    if (i > 0) {
      states = channel_norm(states, shape_.widths[i - 1]);
      states =
          convolved(net_, states, image, {.out = shape_.widths[i], .kernel = 2, .stride = 2}, true);
    }
    return net_.run_layers(
        std::vector<int>(static_cast<std::size_t>(shape_.depths[i])),
        [parts = *this, image](int, const Value& x) { return parts.layer(x, image); },
        std::move(states), first);
  }

 private:
  // Normalises over the channels by pixel, while input and result are stored by channel: one copy.
  Value channel_norm(const Value& x, std::int64_t width) const {
    net_.tape.touch(x.count * size_of(x.type));
    return net_.layer_norm(x, width);
  }

  Value layer(const Value& x, Image image) const {
    Tape& tape = net_.tape;
    const std::int64_t width = image.channels;
    Parameter* const scale = shape_.layer_scale > 0 ? &net_.vector(width) : nullptr;
    Value states =
        convolved(net_, x, image, {.out = width, .kernel = 7, .padding = 3, .groups = width}, true);
    states = channel_norm(states, width);
    states = net_.linear(states, width, 4 * width, "pwconv1");
    states = activation(net_.tape, shape_.function, states);
    states = net_.linear(states, 4 * width, width, "pwconv2");
    if (scale != nullptr) states = times(tape, tape.use(*scale), states);
    return plus(tape, x, states);
  }

  Network& net_;
  const model::ConvnextShape shape_;
};

}  // namespace

Value convnext(Network& net) {
  const model::ConvnextShape shape(net.config);
  const std::int64_t side = net.situation.image, width = shape.widths.back();
  Convnext parts(net, shape);
  net.begin_module("embeddings");
  Image image{net.situation.rows, shape.channels, side, side};
  Value states = parts.embedded(pixels_of(net, shape.channels), image);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < shape.depths.size(); ++i) {
    net.begin_module("encoder.stages." + std::to_string(i));
    states = parts.stage(i, std::move(states), image, first);
    first += shape.depths[i];
  }
  net.begin_module("layernorm");
  Value pooled = mean_of_rows(net.tape, states, net.situation.rows * width);
  pooled = net.layer_norm(pooled, width);
  net.begin_module("classifier", true);
  return net.classification_loss(
      net.linear(pooled, width, net.config.labels(), "classifier", {.is_head = true}));
}

}  // namespace headroom::forecast::detail

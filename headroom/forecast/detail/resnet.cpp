// ResNet: models/families/resnet.cpp.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/forecast/detail/image_networks.h"
#include "headroom/model/shapes.h"

namespace headroom::forecast::detail {
namespace {

struct Block {
  std::int64_t in, out, stride;
};

class Resnet {
 public:
  Resnet(Network& net, const model::ResnetShape& shape) : net_(net), shape_(shape) {}

  Value embedded(const Value& pixels, Image& image) const {
    const std::int64_t width = shape_.embedding;
    Value states = unit(pixels, image, {.out = width, .kernel = 7, .stride = 2, .padding = 3},
                        shape_.function);
    image = result_of(image, {.out = width, .kernel = 3, .stride = 2, .padding = 1});
    return max_pool(net_.tape, states, image.count());
  }

  // `first`: the number of the stage's first block. Blocks may run again in the backward pass.
  Value stage(std::size_t i, Value states, Image& image, std::int64_t first) const {
    const bool downsamples = i > 0 || shape_.downsample_in_first_stage;
    const std::int64_t out = shape_.widths[i];
    const Block begin{image.channels, out, downsamples ? 2 : 1}, other{out, out, 1};
    const Image before =
        std::exchange(image, result_of(image, {.out = out, .kernel = 1, .stride = begin.stride}));
    const auto run = [parts = *this, before, after = image, begin, other](int kind,
                                                                          const Value& x) {
      return kind == 0 ? parts.block(x, before, begin) : parts.block(x, after, other);
    };
    std::vector<int> kinds(static_cast<std::size_t>(shape_.depths[i]), 1);
    kinds.front() = 0;
    return net_.run_layers(kinds, run, std::move(states), first);
  }

 private:
  // `function`: an activation, or "" for none.
  Value unit(const Value& x, Image& image, const Convolution& of, std::string_view function) const {
    Value states = convolved(net_, x, image, of, false);
    Parameter& weight = net_.vector(of.out);
    states = batch_norm(net_.tape, states, weight, net_.vector(of.out));
    if (function.empty()) return states;
    return function == "relu" ? unary(net_.tape, states, Keeps::result)
                              : activation(net_.tape, function, states);
  }

  Value block(const Value& x, Image image, const Block& of) const {
    Image shortcut = image;
    Value states = shape_.bottleneck ? three(x, image, of) : two(x, image, of);
    Value residual = x;
    if (of.in != of.out || of.stride != 1)
      residual = unit(x, shortcut, {.out = of.out, .kernel = 1, .stride = of.stride}, {});
    add_to(net_.tape, states, residual);
    return activation(net_.tape, shape_.function, states);
  }

  Value two(const Value& x, Image& image, const Block& of) const {
    const Value states =
        unit(x, image, {.out = of.out, .kernel = 3, .stride = of.stride, .padding = 1}, "relu");
    return unit(states, image, {.out = of.out, .kernel = 3, .padding = 1}, {});
  }

  Value three(const Value& x, Image& image, const Block& of) const {
    const std::int64_t reduced = of.out / 4;
    const bool at_once = shape_.downsample_in_bottleneck;
    Value states =
        unit(x, image, {.out = reduced, .kernel = 1, .stride = at_once ? of.stride : 1}, "relu");
    states = unit(states, image,
                  {.out = reduced, .kernel = 3, .stride = at_once ? 1 : of.stride, .padding = 1},
                  "relu");
    return unit(states, image, {.out = of.out, .kernel = 1}, {});
  }

  Network& net_;
  const model::ResnetShape shape_;
};

}  // namespace

Value resnet(Network& net) {
  const model::ResnetShape shape(net.config);
  const std::int64_t side = net.situation.image, width = shape.widths.back();
  Resnet parts(net, shape);
  net.begin_module("embedder");
  Image image{net.situation.rows, shape.channels, side, side};
  Value states = parts.embedded(pixels_of(net, shape.channels), image);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < shape.depths.size(); ++i) {
    net.begin_module("encoder.stages." + std::to_string(i));
    states = parts.stage(i, std::move(states), image, first);
    first += shape.depths[i];
  }
  // Running means and variances, one each for every scale and shift.
  for (const Parameter& parameter : net.tape.parameters())
    if (!parameter.is_matrix()) net.buffer_bytes += parameter.times * parameter.bytes();
  net.begin_module("classifier", true);
  const Value pooled = mean_of_rows(net.tape, states, net.situation.rows * width);
  return net.classification_loss(
      net.linear(pooled, width, net.config.labels(), "classifier", {.is_head = true}));
}

}  // namespace headroom::forecast::detail

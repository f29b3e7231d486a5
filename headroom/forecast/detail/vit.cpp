// ViT and DeiT: models/families/vit.cpp.
#include <memory>
#include <string>

#include "headroom/base/error.h"
#include "headroom/forecast/detail/images.h"
#include "headroom/model/shapes.h"

namespace headroom::forecast::detail {
namespace {

class Vit {
 public:
  Vit(Network& net, const model::VitShape& shape) : net_(net), shape_(shape) {}

  Value embedded() {
    Tape& tape = net_.tape;
    const std::int64_t rows = net_.situation.rows, width = shape_.width;
    Image image{rows, shape_.channels, shape_.side, shape_.side};
    Value patches = convolved(net_, pixels_of(net_, shape_.channels), image,
                              {.out = width, .kernel = shape_.patch, .stride = shape_.patch}, true);
    Value tokens;
    for (std::int64_t i = 0; i < shape_.extra; ++i) {
      const Value token = expanded(tape, tape.use(net_.vector(width)), rows * width);
      tokens = tokens ? cat(tape, tokens, token) : token;
    }
    Value states = cat(tape, tokens, patches);
    patches.reset();
    states = plus(tape, states, tape.use(net_.weight(shape_.positions(), width)));
    return net_.dropout(states, shape_.dropout);
  }

  // `normed` and `attended` live until the function returns, as in Python's frame.
  Value layer(const Value& x) {
    const std::int64_t width = shape_.width;
    const Value normed = net_.layer_norm(x, width);
    const Value attended = output(context(normed), width, "attention.output.dense");
    const Value states = plus(net_.tape, attended, x);
    Value out = net_.layer_norm(states, width);
    out = net_.linear(out, width, shape_.inner, "intermediate.dense");
    out = activation(net_.tape, shape_.function, out);
    const Value narrow = output(out, shape_.inner, "output.dense");
    return plus(net_.tape, narrow, states);
  }

 private:
  Value output(const Value& x, std::int64_t in, std::string_view path) {
    return net_.dropout(net_.linear(x, in, shape_.width, path), shape_.dropout);
  }

  Value context(const Value& normed) {
    const auto project = [&](std::string_view path) {
      return net_.heads_of(
          net_.linear(normed, shape_.width, shape_.width, path, {.with_bias = shape_.qkv_bias}));
    };
    const Value k = project("attention.key"), v = project("attention.value"),
                q = project("attention.query");
    Network::Heads of{
        .heads = shape_.heads, .key_heads = shape_.heads, .width = shape_.width / shape_.heads};
    of.dropout = shape_.attention_dropout;
    of.causal = false;
    Value weights;
    return net_.attend(q, k, v, {}, of, &weights);
  }

  Network& net_;
  const model::VitShape shape_;
};

Value encoded(Network& net, const model::VitShape& shape) {
  const auto parts = std::make_shared<Vit>(net, shape);
  const Value embedded = parts->embedded();
  const Value states = net.layers(
      shape.layers, [parts](const Value& x) { return parts->layer(x); }, embedded, "encoder.layer");
  net.begin_module("layernorm");
  return net.layer_norm(states, shape.width);
}

}  // namespace

Value vit(Network& net) {
  const model::VitShape shape(net.config);
  if (net.situation.image != shape.side)
    throw UsageError(expectation("forecast", "images of " + std::to_string(shape.side) + " pixels",
                                 std::to_string(net.situation.image),
                                 "the model's own size: positions are not interpolated"));
  net.begin_module("embeddings");
  const Value states = encoded(net, shape);
  net.begin_module("classifier", true);
  const Value first = slice(net.tape, states, net.situation.rows * shape.width);
  return net.classification_loss(
      net.linear(first, shape.width, net.config.labels(), "classifier", {.is_head = true}));
}

}  // namespace headroom::forecast::detail

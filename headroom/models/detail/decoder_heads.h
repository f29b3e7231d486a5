// The heads that transformers puts on a decoder: one predicts the next token, one classifies a row.
#pragma once

#include <functional>
#include <memory>

#include "headroom/models/detail/attention.h"
#include "headroom/models/detail/family.h"

namespace headroom::models::detail {

class Decoder : public torch::nn::Module {
 public:
  // The hidden states [batch, length, width], of a part those to hand on. `net` runs the layers;
  // `given` has the form of attention, the cache and the routes.
  virtual Tensor operator()(const Batch& batch, const Net& net, const LayerInputs& given) const = 0;
  // The weight of the token embedding [vocabulary, width], without memory if it is not here.
  [[nodiscard]] virtual const Tensor& embedding() const = 0;
};

struct HeadOptions {
  const char* decoder;       // its name on the hub
  const char* head;          // the name of the head that predicts the next token
  bool with_bias = false;    // of that head
  bool casts_twice = false;  // GPT-Neo of 4.57: logits to float before the loss, and both back
  double logit_cap = 0;      // a tanh cap on the head's logits; 0: none
  bool cache_when_training = true;
  bool collects_routes = false;
  // Makes a term of the loss from the routers' logits, one tensor per layer.
  std::function<Tensor(const std::vector<Tensor>& routes, const Batch& batch)> routing_loss = {};
};

struct Headless {
  std::shared_ptr<Decoder> decoder;
  HeadOptions options;
};

// A family with both heads.
[[nodiscard]] Build decoder_family(
    std::function<Headless(const model::ModelConfig&, const Settings&)> headless);

template <typename Decoder>
[[nodiscard]] Build decoder_family(const HeadOptions& options) {
  return decoder_family([options](const model::ModelConfig& config, const Settings& settings) {
    const Here here(config, settings);
    return Headless{std::make_shared<Decoder>(config, settings.transformers, here), options};
  });
}

}  // namespace headroom::models::detail

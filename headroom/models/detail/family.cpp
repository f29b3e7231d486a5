#include "headroom/models/detail/family.h"

#include <ATen/ATen.h>

#include "headroom/base/text.h"

namespace headroom::models::detail {

Tensor Net::run_layer(std::size_t index, const std::function<Tensor(const Tensor&)>& layer,
                      const Tensor& states) const {
  const Checkpointing& checkpointing = settings().checkpointing;
  const bool chosen = index % static_cast<std::size_t>(checkpointing.every) == 0;
  return nn::checkpointed(is_training() && chosen ? checkpointing.how : nn::Recompute::none, layer,
                          states);
}

bool Net::keeps_cache() const {
  const bool recomputes = settings().checkpointing.how != nn::Recompute::none && is_training();
  return settings().use_cache && !recomputes;
}

nn::Activation activation(const formula::ModelConfig& config, const char* key) {
  nn::Activation function = nn::activation(config.text(key));
  if (!function) config.refuse(key, "one of the activations " + join(nn::activation_names(), ", "));
  return function;
}

Tensor dropout(const Tensor& x, double share, bool training) {
  return at::dropout(x, share, training);
}

void keep(Cache* cache, Tensor& keys, Tensor& values) {
  if (cache == nullptr) return;
  const Tensor none = at::empty({0}, keys.options());
  keys = at::cat({none, keys}, -2);
  values = at::cat({none, values}, -2);
  cache->emplace_back(keys, values);
}

}  // namespace headroom::models::detail

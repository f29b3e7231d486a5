// Layers that several nets are made of.
#pragma once

#include <torch/torch.h>

#include <functional>

namespace headroom::nets {

using torch::Tensor;

// torch.nn.functional.linear; C++'s module adds the bias in a step of its own.
inline Tensor linear(const Tensor& x, const torch::nn::Linear& layer) {
  return torch::linear(x, layer->weight, layer->bias);
}

inline torch::nn::Linear linear_without_bias(std::int64_t in, std::int64_t out) {
  return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false));
}

// Attention with several heads; queries, keys and values [batch, length, width].
Tensor attention(Tensor q, Tensor k, Tensor v, std::int64_t heads, bool causal);

// A transformer's layer, with attention to a memory if `across`.
class Block : public torch::nn::Module {
 public:
  struct Options {
    std::int64_t width = 0;
    std::int64_t heads = 0;
    bool causal = false;
    double dropout = 0;
    bool across = false;
  };
  explicit Block(const Options& options);
  Tensor forward(Tensor x, const Tensor& memory = {});
  // Where its parameters live.
  [[nodiscard]] c10::Device device() const { return norm1_->weight.device(); }

 private:
  Tensor dropped(Tensor x) const;

  const Options options_;
  torch::nn::LayerNorm norm1_{nullptr}, norm2_{nullptr}, norm3_{nullptr};
  torch::nn::Linear qkv_{nullptr}, out_{nullptr}, up_{nullptr}, down_{nullptr};
  torch::nn::Linear query_{nullptr}, key_value_{nullptr}, out2_{nullptr};
};

// Keeps the input of `layer` alone and computes the rest again in backward, as Python's
// torch.utils.checkpoint(..., use_reentrant=True, preserve_rng_state=False).
Tensor checkpointed(const std::function<Tensor(Tensor)>& layer, const Tensor& x);

}  // namespace headroom::nets

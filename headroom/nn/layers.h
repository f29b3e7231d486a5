// The layers that transformers' models are made of, as PyTorch's Python classes of the same name:
// C++'s torch::nn::Linear adds its bias in a step of its own, and what a step allocates is what
// Headroom is about.
//
// Weights are made without values (a dry run needs none, a checkpoint overwrites them);
// models/initialise.h fills them.
//
// This header is for those who write models: it brings torch/nn/module.h along, which takes 10 s to
// compile. What a user of models needs does not.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace headroom::nn {

using at::Tensor;

// What follows a product: given its input and its result, it gives another result (LoRA adds to
// it, nn/lora.h). Empty: nothing.
using After = std::function<Tensor(const Tensor& x, Tensor result)>;

class Linear : public torch::nn::Module {
 public:
  Linear(std::int64_t in, std::int64_t out, bool with_bias = true);
  // Over the weight of another module, to which it belongs: not a parameter of this one.
  explicit Linear(Tensor tied);
  Tensor operator()(const Tensor& x) const;
  [[nodiscard]] bool is_tied() const { return !named_parameters(false).contains("weight"); }

  Tensor weight;  // [out, in]
  Tensor bias;    // undefined: none
  After after;
};

// GPT-2's: a linear layer with the weight the other way round.
class Conv1D : public torch::nn::Module {
 public:
  Conv1D(std::int64_t in, std::int64_t out);
  Tensor operator()(const Tensor& x) const;

  Tensor weight;  // [in, out]
  Tensor bias;
  After after;
};

class Embedding : public torch::nn::Module {
 public:
  // `padding`: the row that gets no gradient; -1: none.
  Embedding(std::int64_t rows, std::int64_t width, std::int64_t padding = -1);
  Tensor operator()(const Tensor& indices) const;
  [[nodiscard]] std::int64_t padding() const { return padding_; }

  Tensor weight;
  bool result_needs_gradient = false;  // even where the weight needs none

 private:
  std::int64_t padding_;
};

class LayerNorm : public torch::nn::Module {
 public:
  LayerNorm(std::int64_t width, double epsilon, bool affine = true);
  Tensor operator()(const Tensor& x) const;

  Tensor weight, bias;

 private:
  std::int64_t width_;
  double epsilon_;
};

// Llama's: statistics in float, the result in the input's type, then the weight.
class RmsNorm : public torch::nn::Module {
 public:
  RmsNorm(std::int64_t width, double epsilon);
  Tensor operator()(const Tensor& x) const;

  Tensor weight;

 private:
  double epsilon_;
};

class Conv2d : public torch::nn::Module {
 public:
  struct Options {
    std::int64_t kernel = 1, stride = 1, padding = 0, groups = 1;
    bool with_bias = true;
  };
  Conv2d(std::int64_t in, std::int64_t out, const Options& options);
  Tensor operator()(const Tensor& x) const;

  Tensor weight, bias;
  bool result_needs_gradient = false;  // even where neither weight nor input needs one

 private:
  Options options_;
};

class BatchNorm2d : public torch::nn::Module {
 public:
  explicit BatchNorm2d(std::int64_t channels, double epsilon = 1e-5, double momentum = 0.1);
  Tensor operator()(const Tensor& x) const;

  Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 private:
  double epsilon_, momentum_;
};

// A numbered list of modules of one class, as torch.nn.ModuleList.
template <typename Layer>
class List : public torch::nn::Module {
 public:
  std::shared_ptr<Layer> add(std::shared_ptr<Layer> layer) {
    register_module(std::to_string(layers_.size()), layer);
    layers_.push_back(layer);
    return layer;
  }
  [[nodiscard]] auto begin() const { return layers_.begin(); }
  [[nodiscard]] auto end() const { return layers_.end(); }
  [[nodiscard]] std::size_t size() const { return layers_.size(); }
  [[nodiscard]] const std::shared_ptr<Layer>& operator[](std::size_t i) const { return layers_[i]; }

 private:
  std::vector<std::shared_ptr<Layer>> layers_;
};

}  // namespace headroom::nn

// The layers of transformers' models, like PyTorch's Python classes of the same name. Headroom has
// its own because a step must allocate the same: C++'s torch::nn::Linear adds its bias separately.
//
// Weights are created uninitialized (a dry run needs no values, a checkpoint overwrites them);
// models/initialise.h fills them.
//
// This header is for model authors. It includes torch/nn/module.h, which takes 10 s to compile;
// headers for users of models do not.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace headroom::nn {

using at::Tensor;

// Called after a layer's product with its input and result; returns a new result (LoRA adds to it,
// nn/lora.h). May be empty.
using After = std::function<Tensor(const Tensor& x, Tensor result)>;

class Linear : public torch::nn::Module {
 public:
  Linear(std::int64_t in, std::int64_t out, bool with_bias = true);
  // Uses the weight of another module, which owns it: not a parameter of this one.
  explicit Linear(Tensor tied);
  Tensor operator()(const Tensor& x) const;
  [[nodiscard]] bool is_tied() const { return !named_parameters(false).contains("weight"); }

  Tensor weight;  // [out, in]
  Tensor bias;    // undefined without a bias
  After after;
};

// GPT-2's linear layer, with a transposed weight.
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
  // `padding`: the row that gets no gradient, or -1.
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

// Llama's RMS norm: computes statistics in float, casts the result to the input's type, then
// applies the weight.
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

// Updates its running statistics in the first run of a checkpointed part only.
class BatchNorm2d : public torch::nn::Module {
 public:
  explicit BatchNorm2d(std::int64_t channels, double epsilon = 1e-5, double momentum = 0.1);
  Tensor operator()(const Tensor& x) const;

  Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 private:
  double epsilon_, momentum_;
};

// A numbered list of modules of one class, like torch.nn.ModuleList.
template <typename Layer>
class List : public torch::nn::Module {
 public:
  std::shared_ptr<Layer> add(std::shared_ptr<Layer> layer) {
    register_module(std::to_string(layers_.size()), layer);
    layers_.push_back(layer);
    return layer;
  }
  // Counts one that is not here: a null pointer.
  void skip() { layers_.push_back(nullptr); }
  [[nodiscard]] auto begin() const { return layers_.begin(); }
  [[nodiscard]] auto end() const { return layers_.end(); }
  [[nodiscard]] std::size_t size() const { return layers_.size(); }
  [[nodiscard]] const std::shared_ptr<Layer>& operator[](std::size_t i) const { return layers_[i]; }

 private:
  std::vector<std::shared_ptr<Layer>> layers_;
};

}  // namespace headroom::nn

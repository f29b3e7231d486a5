// LoRA: the weights of a model stay as they are, and beside chosen linear layers two small matrices
// are trained, whose product is added to what the layer gives.
//
//   const auto lora = nn::add_lora(model->module(), {.rank = 16, .alpha = 32});
//   optim::make_adamw(trained parameters) ...
//   lora.merge();                          // into the weights: nothing is computed beside them
//
// As peft's (0.18): in the same order, with the same temporaries, scaled by alpha / rank. Layers
// stay the objects they are; an adapter is two more children of its layer, `lora_A` and `lora_B`
// (of an embedding: two more parameters), so a parameter is called as in peft's files but for their
// beginning "base_model.model.", and the weights keep the hub's names.
//
// Targets are layers of any module, your own `struct Net : torch::nn::Module` included:
// torch::nn::Linear, Conv1d, Conv2d and Embedding, and Linear and Conv1D of headroom::nn. A layer
// of torch::nn is reached wherever at::linear, matmul or addmm with weight.t(), conv1d, conv2d or
// embedding run with its weight (libtorch/follow.h), as in its own forward(); a forward() that
// computes with the weight by other operators sees the plain weight. A pattern is
//   q, k, v, o     attention's queries, keys, values and what follows them, under whatever name the
//                  model has for them (those that make several at once count for each)
//   all-linear     all linear layers but those of the head (nn/freeze.h)
//   a name         "fc1", "self_attn.q_proj": the last parts of a layer's path, or all of it
//   with * and ?   "model.layers.1?.*_proj": the whole path; * is any text. Layers of each kind
//                  count: "*" takes embeddings and convolutions, too
//
// Threads: as the model's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace headroom::nn {

struct LoraOptions {
  std::int64_t rank = 8;
  double alpha = 8;    // what is added is multiplied by alpha / rank
  double dropout = 0;  // of what goes into an adapter, while training
  // Adapters beside half-precision weights are float32, and so is what they compute: peft's
  // autocast_adapter_dtype. False: they have their layer's type, at half the memory.
  bool float32 = true;
  std::vector<std::string> targets = {"q", "v"};
};

class Lora {
 public:
  // The names of the layers that have an adapter, in the model's order.
  [[nodiscard]] std::vector<std::string> layers() const;
  // The adapters' parameters under the names of peft's files.
  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> parameters() const;

  // Adds the products to the weights, and computes them no more beside; and back. What is taken off
  // again is what was added but for the weights' rounding. A second call does nothing.
  void merge();
  void unmerge();
  [[nodiscard]] bool merged() const;

 private:
  friend Lora add_lora(torch::nn::Module& model, const LoraOptions& options);
  class Adapter;
  std::vector<std::pair<std::string, std::shared_ptr<Adapter>>> adapters_;
};

// Freezes the model and gives the targets adapters, which lie where the weights lie. They start as
// peft's: A random, from the device's generator, B zero (of an embedding the other way round), so
// that nothing changes at first; what
// gives a model its first values (models/initialise.h) comes before. Throws UsageError for a
// pattern that no layer has (those there are are named), a layer that cannot have an adapter (it
// has one already, is a convolution in groups, an embedding with max_norm, or shares its weight
// with another layer of its kind), and numbers that make no sense.
[[nodiscard]] Lora add_lora(torch::nn::Module& model, const LoraOptions& options = {});

// transformers' enable_input_require_grads: what the first embedding gives (in a model without, its
// first convolution) needs a gradient from now on. Checkpointed layers of a frozen model need it:
// the reentrant form gives their parameters no gradient unless an input needs one.
void require_input_gradients(torch::nn::Module& model);

}  // namespace headroom::nn

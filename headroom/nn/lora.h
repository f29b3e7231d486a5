// LoRA: a model's weights stay frozen. Chosen layers get two small trained matrices each, and their
// product is added to the layer's result.
//
//   const auto lora = nn::add_lora(model->module(), {.rank = 16, .alpha = 32});
//   optim::make_adamw(trained parameters) ...
//   lora.merge();                          // into the weights: nothing is computed beside them
//
// Like peft's (0.18): the same order, the same temporaries, scaled by alpha / rank, or with
// rank_stabilised by alpha / sqrt(rank). DoRA is not here: it adds temporaries of the weights'
// size. weights/adapter_files.h saves adapters as peft's files and loads them. Layers stay the same
// objects. An adapter adds two children to its layer, `lora_A` and `lora_B` (to an embedding,
// two parameters). So parameters have the names of peft's files without their prefix
// "base_model.model.", and weights keep the hub's names.
//
// Targets are layers of any module, your own `struct Net : torch::nn::Module` included:
// torch::nn::Linear, Conv1d, Conv2d and Embedding, and Linear and Conv1D of headroom::nn. Other
// layers (LSTM, MultiheadAttention, Conv3d, transposed convolutions) have no adapters. The
// adapter of a torch::nn layer applies wherever at::linear, matmul or addmm with weight.t(),
// conv1d, conv2d or embedding run with its weight (libtorch/follow.h), as in its own forward(). A
// forward() that uses the weight in other operators sees the plain weight. A pattern is
//   q, k, v, o     attention's query, key, value and output projections, under the names that they
//                  have in published models: q, q_proj, query, q_lin, c_attn, qkv, Wqkv, ...
//                  (a fused projection matches each of its parts)
//   all-linear     all linear layers except those of the head (nn/freeze.h)
//   a name         "fc1", "self_attn.q_proj": the last parts of a layer's path, or all of it
//   with * and ?   "model.layers.1?.*_proj": the whole path; * is any text. Layers of each kind
//                  match: "*" includes embeddings and convolutions
//
// Threads: the same rules as for the model.
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
  double alpha = 8;              // the adapter's result is multiplied by alpha / rank
  bool rank_stabilised = false;  // by alpha / sqrt(rank) instead: rsLoRA, peft's use_rslora
  double dropout = 0;            // on the adapter's input, while training
  // Adapters of half-precision weights are float32 and compute in float32, like peft's
  // autocast_adapter_dtype. If false, they have their layer's type, at half the memory.
  bool float32 = true;
  // Whether a float32 adapter on a half-precision layer keeps its input for the backward pass as it
  // came, once for layers that share it. If false, each keeps a float32 copy, like peft's: more
  // memory for the same bits. Layers under autocast, with active dropout or with a convolution keep
  // copies in either case.
  bool keeps_input_once = true;
  // The module is some layers of a model on several cards, and need not have a target.
  bool is_part = false;
  std::vector<std::string> targets = {"q", "v"};
};

// A layer and the numbers of its adapter.
struct LoraLayer {
  std::string name;  // the layer's path in the model: "model.layers.0.mlp.up_proj"
  std::int64_t rank = 8;
  double alpha = 8;
};

class Lora {
 public:
  // The adapters of a model whose parts lie on several cards: of each part, in their order.
  [[nodiscard]] static Lora joined(const std::vector<Lora>& parts);

  // The names of the layers that have an adapter, in the model's order.
  [[nodiscard]] std::vector<std::string> layers() const;
  // The same layers with their numbers.
  [[nodiscard]] std::vector<LoraLayer> adapters() const;
  // The names of all other modules of the model.
  [[nodiscard]] const std::vector<std::string>& others() const { return others_; }
  [[nodiscard]] const LoraOptions& options() const { return options_; }
  // Whether a layer is a Conv1D of transformers, whose weight is [in, out]: peft's fan_in_fan_out.
  [[nodiscard]] bool has_conv1d() const;
  // The adapters' parameters under the names of peft's files.
  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> parameters() const;

  // merge() adds the products to the weights and stops computing them separately; unmerge()
  // subtracts them again, exact up to the weights' rounding. A repeated call does nothing.
  //
  // merge() throws UsageError for a weight that is used otherwise, too, as an embedding's is by a
  // tied head: that other result would change. It knows the model's registered layers. For
  // torch::nn layers it also knows what forward() did with their weights since add_lora, such as a
  // head's matmul(x, table->weight.t()), where it used the operators of libtorch/follow.h. So run
  // your own model once before; for an embedding of torch::nn, merge() insists on it. Both throw
  // for quantised weights (nn/quantise.h), which would round the product away.
  void merge();
  void unmerge();
  [[nodiscard]] bool merged() const;

 private:
  friend Lora add_lora_to(torch::nn::Module& model, const std::vector<LoraLayer>& layers,
                          const LoraOptions& options);
  class Adapter;
  struct Layer {
    LoraLayer described;
    std::shared_ptr<Adapter> adapter;
    bool is_tied;      // other layers use the weight, too
    bool is_followed;  // of torch::nn
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> weight;
  };
  void merge(bool into);
  static void check_weight(const Layer& layer);
  static void check_uses(const Layer& layer);
  LoraOptions options_;
  std::vector<Layer> layers_;
  std::vector<std::string> others_;
};

// Freezes the model and adds adapters to the targets, on the devices of their weights. Values start
// as peft's, so that results do not change at first: A is random, from the device's generator, and
// B is zero (for an embedding the other way round). Call models::initialise before.
//
// Throws UsageError for a pattern that matches no layer (the message names those there are), for a
// layer that cannot have an adapter (it has one already, is a grouped convolution, is an embedding
// with max_norm, shares its weight with another layer of its kind, or is registered under two
// names that both match), and for invalid numbers.
[[nodiscard]] Lora add_lora(torch::nn::Module& model, const LoraOptions& options = {});

// The same for exactly these layers, each with its own rank and alpha. The options' rank, alpha and
// targets are not used. Throws UsageError also for a layer that the model lacks, and for none.
[[nodiscard]] Lora add_lora_to(torch::nn::Module& model, const std::vector<LoraLayer>& layers,
                               const LoraOptions& options = {});

// The names of the layers that match, in the model's order; by default of all that are of a
// supported kind. Throws UsageError for a pattern that matches none.
[[nodiscard]] std::vector<std::string> lora_layers(torch::nn::Module& model,
                                                   const std::vector<std::string>& patterns = {
                                                       "*"});

// The sizes of the parameters that add_lora_to would add, under the names of peft's files. Throws
// as add_lora_to does, and changes nothing.
[[nodiscard]] std::vector<std::pair<std::string, std::vector<std::int64_t>>> lora_sizes(
    torch::nn::Module& model, const std::vector<LoraLayer>& layers);

// transformers' enable_input_require_grads: from now on the result of the first embedding (in a
// model without one, of the first convolution) requires a gradient. Checkpointed layers of a frozen
// model need this: the reentrant form gives their parameters no gradient unless an input requires
// one. It finds headroom::nn's Embedding and Conv2d, and throws UsageError if the model has none;
// in your own model call set_requires_grad(true) on what the first layer returns.
void require_input_gradients(torch::nn::Module& model);

}  // namespace headroom::nn

// Stores the frozen weights of linear layers in 8 or 4 bit, for training beside them: adapters
// (nn/lora.h) or a head.
//
//   nn::quantise(model->module());                     // NF4, a quarter of bfloat16's memory
//   const auto lora = nn::add_lora(model->module());   // before or after
//
// Layers stay as they are. Each weight stays a parameter with its name, sizes and type, and has no
// memory of its own (libtorch/stored_weight.h). A product unpacks the weight in tiles, in the type
// of the product; the backward pass does so again, and nothing is kept between them but the packed
// form. Results and gradients are those of the model with the unpacked weights.
//
// int8 is weight-only: products are computed in the layer's type, unlike LLM.int8's. Formats are
// described in kernels/packed.h.
//
// A model that is too big for the device in its own type is built without memory, and its weights
// are packed as they are read (weights/safetensors.h) or drawn:
//
//   auto model = [&] {
//     const nn::WithoutMemoryScope scope;
//     return models::build(config);
//   }();
//   nn::quantise(model->module());     // memory for the packed weights, without values
//   nn::give_memory(model->module());  // for the head
//   models::initialise(*model);
//
// Threads: the same rules as for the model.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <vector>

#include "headroom/kernels/packed.h"

namespace torch::nn {
class Module;
}

namespace headroom::nn {

struct QuantiseOptions {
  kernels::Format format = kernels::Format::nf4;
  bool nested = true;  // NF4's scales in 8 bit, too
};

// The linear layers of `module` that are quantised, by path: torch::nn::Linear, and Linear, Conv1D
// and StackedExperts of headroom::nn. Left out are heads (nn/freeze.h), weights that several layers
// share, adapters, and, if some linear layers are frozen, those that are not: they are trained.
[[nodiscard]] std::vector<std::string> quantised_layers(torch::nn::Module& module);

// Quantises them in place, a layer at a time, and freezes their weights. Returns how many weights
// it packed. A weight in 8 bit that shall have 4 is packed anew from its unpacked values; one in
// this format, or in fewer bits, stays as it is; one without memory gets packed memory without
// values. Throws UsageError for a module without such layers.
std::size_t quantise(torch::nn::Module& module, const QuantiseOptions& options = {});

// The packed form of a weight; null for one that is not quantised. The weights of StackedExperts
// are packed as one matrix, the experts' rows one below the other. That of a Conv1D, [in, out], is
// packed as its transpose: as in files of bitsandbytes, int8's scales are those of the outputs.
[[nodiscard]] const kernels::Packed* packed_of(const at::Tensor& weight);
[[nodiscard]] bool is_packed_transposed(const at::Tensor& weight);
// Puts a packed form into a weight of its sizes, which loses its memory and is frozen.
void set_packed(const at::Tensor& weight, const kernels::Packed& packed, bool transposed = false);

// While one lives, the linear layers of headroom::nn that this thread builds get weights without
// memory: sizes, type and device only.
class WithoutMemoryScope {
 public:
  WithoutMemoryScope();
  ~WithoutMemoryScope();
  WithoutMemoryScope(const WithoutMemoryScope&) = delete;
  WithoutMemoryScope& operator=(const WithoutMemoryScope&) = delete;

 private:
  const bool before_;
};

// Whether a weight was built without memory, and has got neither memory nor a packed form since.
[[nodiscard]] bool is_without_memory(const at::Tensor& weight);
// Gives such weights of `module` their memory after all, without values.
void give_memory(torch::nn::Module& module);

}  // namespace headroom::nn

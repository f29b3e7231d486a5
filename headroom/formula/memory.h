// Memory by closed form: what weights, gradients, optimizer states and activations take.
//
// Formulas of the tensors only: without the CUDA context, cuBLAS workspaces, cached blocks and
// fragmentation. They assume attention without stored scores (PyTorch's SDPA) and no dropout. For a
// batch of 4 x 1024 on GPT-2 the form gives 6.4 GiB; the step's own record of every tensor, 6.40.
//
//   TrainingMemory m = training_memory(shape, Technique::mixed_precision, {.batch = 1, .seq =
//   2048}); m.total()
#pragma once

#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/formula/model_shape.h"

namespace headroom::formula {

enum class Precision { fp32, fp16, int8, int4 };

// Bytes of the weights alone; quantised ones without their scales (about 3 % more in blocks of 64).
[[nodiscard]] Bytes weight_bytes(const ModelShape& shape, Precision precision);

enum class Technique {
  fp32,                // AdamW, everything in fp32
  sgd,                 // fp32, plain SGD: no optimizer state
  mixed_precision,     // fp32 weights and states, computing in bf16: saves activations only
  mixed_checkpointed,  // and every layer's inside computed again in the backward pass
  bf16,                // weights, gradients and states in bf16
  lora,                // frozen bf16 weights, adapters of rank 8 trained, checkpointed
  lora_4bit,           // the same over 4-bit weights
};
[[nodiscard]] const std::vector<Technique>& all_techniques();
[[nodiscard]] const char* name_of(Technique technique);  // "mixed precision"
[[nodiscard]] const char* key_of(Technique technique);   // "mixed_precision": for JSON

// Never assumed in silence: a caller states them, a table prints them.
struct Batch {
  long long batch = 1, seq = 512;
};

struct TrainingMemory {
  Bytes weights, gradients, optimizer, activations;
  Bytes logits;  // the output and the loss on it: three fp32 tensors of batch x seq x vocabulary
  [[nodiscard]] Bytes states() const { return weights + gradients + optimizer; }
  [[nodiscard]] Bytes total() const { return states() + activations + logits; }
};
[[nodiscard]] TrainingMemory training_memory(const ModelShape& shape, Technique technique,
                                             Batch batch);

// Weights, the key-value cache in 16 bit for the whole sequence, and the last token's logits.
[[nodiscard]] Bytes inference_memory(const ModelShape& shape, Precision precision, Batch batch);

}  // namespace headroom::formula

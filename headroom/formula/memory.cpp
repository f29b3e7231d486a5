#include "headroom/formula/memory.h"

#include "headroom/base/error.h"

namespace headroom::formula {
namespace {

constexpr long long kLoraRank = 8;

Bytes times(double bytes_each, long long n) {
  return Bytes{static_cast<std::int64_t>(bytes_each * static_cast<double>(n))};
}

// Elements that one layer keeps for its backward pass, a token. GPT-2: the inputs of both norms and
// what they put out (4 d), q, k, v (3 d), attention's result (d), the wide layer before and after
// its activation (2 f). Llama writes its norms out in steps (2 d more) and keeps q and k before and
// after the rotation, and four wide tensors: gate, its activation, up, their product.
long long saved_per_token(const ModelShape& shape) {
  const long long d = shape.hidden, kv = kv_width(shape), f = shape.ffn;
  if (shape.gated_ffn) return 9 * d + 3 * kv + 4 * f;
  return 6 * d + 2 * kv + 2 * f;
}

struct Recipe {
  double weight, gradient, optimizer;  // bytes a parameter
  double activation;                   // bytes an element
  bool checkpointed;
  bool adapters_only;
};

// Mixed precision: autocast keeps bf16 copies of the fp32 weights until the step is over (4 + 2).
// 4-bit: 4.127 bits a weight with doubly quantised scales (Dettmers et al. 2023, section 3).
Recipe recipe_of(Technique technique) {
  switch (technique) {
    case Technique::fp32:
      return {4, 4, 8, 4, false, false};
    case Technique::sgd:
      return {4, 4, 0, 4, false, false};
    case Technique::mixed_precision:
      return {6, 4, 8, 2, false, false};
    case Technique::mixed_checkpointed:
      return {6, 4, 8, 2, true, false};
    case Technique::bf16:
      return {2, 2, 4, 2, false, false};
    case Technique::lora:
      return {2, 4, 8, 2, true, true};
    case Technique::lora_4bit:
      return {4.127 / 8, 4, 8, 2, true, true};
  }
  throw InternalError("[recipe_of] unknown technique");
}

// Adapters on the four attention projections, each with two thin matrices, kept in fp32.
long long adapter_parameters(const ModelShape& shape) {
  const long long d = shape.hidden, kv = kv_width(shape);
  return shape.layers * kLoraRank * (2 * (d + d) + 2 * (d + kv));
}

Bytes frozen_weights(const ModelShape& shape, const Recipe& recipe) {
  // Embeddings stay in bf16 when the rest is quantised.
  const long long embeddings = embedding_parameters(shape);
  return times(recipe.weight, parameters(shape) - embeddings) + times(2, embeddings) +
         times(4, adapter_parameters(shape));
}

Bytes activations(const ModelShape& shape, const Recipe& recipe, long long tokens) {
  const long long one_layer = tokens * saved_per_token(shape);
  const long long kept = recipe.checkpointed ? shape.layers * tokens * shape.hidden + one_layer
                                             : shape.layers * one_layer;
  return times(recipe.activation, kept);
}

}  // namespace

Bytes weight_bytes(const ModelShape& shape, Precision precision) {
  const long long n = parameters(shape);
  switch (precision) {
    case Precision::fp32:
      return Bytes{4 * n};
    case Precision::fp16:
      return Bytes{2 * n};
    case Precision::int8:
      return Bytes{n};
    case Precision::int4:
      return Bytes{(n + 1) / 2};
  }
  throw InternalError("[weight_bytes] unknown precision");
}

const std::vector<Technique>& all_techniques() {
  static const std::vector<Technique> all{
      Technique::fp32, Technique::sgd,  Technique::mixed_precision, Technique::mixed_checkpointed,
      Technique::bf16, Technique::lora, Technique::lora_4bit};
  return all;
}

const char* name_of(Technique technique) {
  switch (technique) {
    case Technique::fp32:
      return "fp32 AdamW";
    case Technique::sgd:
      return "fp32 SGD";
    case Technique::mixed_precision:
      return "mixed precision";
    case Technique::mixed_checkpointed:
      return "mixed + checkpointing";
    case Technique::bf16:
      return "pure bf16";
    case Technique::lora:
      return "LoRA (bf16)";
    case Technique::lora_4bit:
      return "LoRA (4-bit)";
  }
  return "";
}

const char* key_of(Technique technique) {
  switch (technique) {
    case Technique::fp32:
      return "fp32_adamw";
    case Technique::sgd:
      return "fp32_sgd";
    case Technique::mixed_precision:
      return "mixed_precision";
    case Technique::mixed_checkpointed:
      return "mixed_precision_checkpointing";
    case Technique::bf16:
      return "bf16";
    case Technique::lora:
      return "lora";
    case Technique::lora_4bit:
      return "lora_4bit";
  }
  return "";
}

TrainingMemory training_memory(const ModelShape& shape, Technique technique, Batch batch) {
  const Recipe recipe = recipe_of(technique);
  const long long tokens = batch.batch * batch.seq;
  const long long trained = recipe.adapters_only ? adapter_parameters(shape) : parameters(shape);
  return {.weights = recipe.adapters_only ? frozen_weights(shape, recipe)
                                          : times(recipe.weight, parameters(shape)),
          .gradients = times(recipe.gradient, trained),
          .optimizer = times(recipe.optimizer, trained),
          .activations = activations(shape, recipe, tokens),
          .logits = times(3 * 4, tokens * shape.vocab)};
}

Bytes inference_memory(const ModelShape& shape, Precision precision, Batch batch) {
  const long long cache = 2 * shape.layers * kv_width(shape) * batch.batch * batch.seq;
  return weight_bytes(shape, precision) + times(2, cache) + times(4, batch.batch * shape.vocab);
}

}  // namespace headroom::formula

// The settings of a model's run, as on the command line. The forecast prices them, the dry run
// executes them, and `headroom train` trains with them. Each reports the settings that it does not
// support.
//
//   Settings settings;
//   settings.batch = 4;
//   settings.dtype = Dtype::bfloat16;
//
// Each choice has one spelling, that of the command line: to_string writes it, `choice` reads it.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/json.h"

namespace headroom::model {

enum class Task { causal_lm, masked_lm, sequence_classification, image_classification, seq2seq_lm };
// The type of parameters, gradients and activations.
enum class Dtype { float32, bfloat16, float16 };
enum class Autocast { none, bf16, fp16 };
enum class Optimizer {
  adamw,
  adam,
  sgd,
  sgd_momentum,
  adafactor,
  adafactor_hf,
  adamw8bit,
  adamw4bit,
  none
};
// PyTorch's three forms of one optimizer; they differ in temporaries.
enum class OptimizerForm { fused, foreach, loop };
// Rounding of float results into weights of lower precision.
enum class Rounding { nearest, stochastic };
// The type of adapters: float32, as peft makes them, or that of the weights below them.
enum class LoraDtype { float32, weights };
enum class Attention { sdpa, eager };
// The version of transformers whose operations a published model follows: 4.57.6, or 5.23.0.
enum class Transformers { v4_57, v5 };
// The attention mask that the model is given: all ones, or none.
enum class Mask { ones, none };
enum class CheckpointingKind { nonreentrant, reentrant };
enum class Quantize { none, int8, int4 };
enum class Mode { train, inference, generate };
enum class Policy { exact, size_table, strategy, simple, variant };
enum class OffloadTo { host, disk };
enum class LossForm { full, fused, chunked };

// Throws UsageError for an unknown word; the error names the nearest choice.
template <typename Choice>
[[nodiscard]] Choice choice(std::string_view word);
template <typename Choice>
[[nodiscard]] std::string_view to_string(Choice choice);
template <typename Choice>
[[nodiscard]] const std::vector<std::string>& choices();

struct Offload {
  bool optimizer = false, gradients = false, parameters = false, activations = false;
  OffloadTo to = OffloadTo::host;
  [[nodiscard]] bool any() const { return optimizer || gradients || parameters || activations; }
  bool operator==(const Offload&) const = default;
};

struct Settings {
  std::optional<Task> task = {};                // std::nullopt: taken from the config
  std::int64_t batch = 1;                       // rows in one forward pass
  std::optional<std::int64_t> seq = {};         // std::nullopt: 512, or the model's maximum if less
  std::optional<std::int64_t> target_seq = {};  // of an encoder-decoder; std::nullopt: as `seq`
  // Pixels per side; std::nullopt: the config's value, else 224.
  std::optional<std::int64_t> image = {};
  Dtype dtype = Dtype::float32;
  Autocast autocast = Autocast::none;
  Optimizer optimizer = Optimizer::adamw;
  OptimizerForm form = OptimizerForm::fused;
  bool optimizer_in_backward = false;
  Rounding rounding = Rounding::nearest;
  Attention attention = Attention::sdpa;
  Transformers transformers = Transformers::v5;
  Mask mask = Mask::ones;
  std::int64_t checkpoint_every = 0;  // layers; 0: no checkpointing, 1: every layer
  CheckpointingKind checkpointing_kind = CheckpointingKind::nonreentrant;
  std::int64_t accumulation = 1;
  std::optional<double> clip = {};             // maximum global norm of the gradients
  bool zero_gradients = false;                 // fill them with zeros instead of freeing them
  std::int64_t lora_rank = 0;                  // 0: no LoRA
  std::vector<std::string> lora_targets = {};  // an empty list means queries and values
  LoraDtype lora_dtype = LoraDtype::float32;
  bool freeze_backbone = false;
  Quantize quantize = Quantize::none;
  LossForm loss = LossForm::full;
  std::int64_t loss_chunk = 0;            // tokens per chunk, if chunked
  std::set<std::string> techniques = {};  // by name: those without a field here (plan/technique.h)
  bool use_cache = false;
  bool hold_outputs = false;  // the model's outputs live through the backward pass
  int steps = 2;
  int world = 1;
  int zero = 0;  // ZeRO stage
  Offload offload = {};
  Mode mode = Mode::train;
  Policy policy = Policy::exact;

  bool operator==(const Settings&) const = default;
};

// True if the optimizer can round its results stochastically.
[[nodiscard]] bool can_round(Optimizer optimizer);

// Convert settings to and from JSON, with the command line's names and words. A missing key keeps
// its default. Throws UsageError for an unknown key or word.
[[nodiscard]] Json to_json(const Settings& settings);
[[nodiscard]] Settings settings_from_json(const Json& json);

}  // namespace headroom::model

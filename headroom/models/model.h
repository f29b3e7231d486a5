// Published models, built from a config.json of the Hugging Face hub and run operation for
// operation in the order of transformers' own PyTorch code (5.23.0 or 4.57.6), because temporaries
// and saved tensors decide how much memory a step takes. Parameters have the hub's names.
//
//   const auto config = model::read_config("gpt2/config.json");
//   const auto model = libtorch::on(device, [&] { return models::build(config); });
//   model->train();
//   const Batch batch = models::empty_batch(*model, {.rows = 4, .length = 1024}, device);
//   model->run(batch).loss.backward();
//
// Under libtorch::on(device), weights are created on that device without values. `initialise` gives
// them the values of a new model, a checkpoint (weights/safetensors.h) those of a trained one.
//
// Threads: one model, one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/model/model_config.h"
#include "headroom/model/run_settings.h"
#include "headroom/nn/checkpoint.h"

namespace torch::nn {
class Module;
}

namespace headroom::models {

using model::Attention;
using model::Task;
using model::Transformers;

// Checkpointed layers keep only their input, and run forward again in the backward pass. Layers are
// counted from 0 in the order in which they run, in T5 those of encoder and decoder each for
// itself; in ResNet and ConvNeXt, which transformers does not checkpoint, they are the residual
// blocks of all stages.
struct Checkpointing {
  nn::Recompute how = nn::Recompute::none;
  int every = 1;              // 1: every layer; 2: every second one
  std::set<int> layers = {};  // only these, unless empty
  // Keeps the tensors that attention returns and saves, which then does not run again: for the
  // nonreentrant form. The own eager forms of BERT, DistilBERT, GPT-2, GPT-Neo and T5 do run again.
  bool but_attention = false;
};

// Some layers of a model that is split over several cards, one after another, counted as for
// Checkpointing, but in T5 through encoder and decoder. The part with the first layer has what
// comes before the layers, such as embeddings, and the one with the last has the head. A weight
// that both use is in both, under the name of the first: a copy. So are T5's shared embeddings in
// the part with the decoder's first layer.
struct Part {
  std::int64_t first = 0, count = 0;
};

struct Settings {
  std::optional<Task> task = {};          // std::nullopt: the task of the config's `architectures`
  Attention attention = Attention::sdpa;  // `eager` where the model has nothing else
  Transformers transformers = Transformers::v5;
  Checkpointing checkpointing = {};
  bool use_cache = false;  // keep keys and values, as transformers does by default
  // Tokens per chunk of head and loss (nn/chunked_loss.h); there is then a loss and no logits. 0:
  // all at once, as in transformers.
  std::int64_t loss_chunk = 0;
  // Computes head and loss in one, with gradients in the forward pass (nn/fused_loss.h); there is
  // then a loss in float and no logits. Not with loss_chunk.
  bool fused_loss = false;
  std::optional<Part> part = {};  // that is built; std::nullopt: the whole model
};

struct Batch {
  at::Tensor tokens;  // [batch, length]
  at::Tensor mask;    // [batch, length]: 1 where there is a token; undefined: no mask
  // transformers searches the mask for padding. A mask without data cannot answer; this does.
  bool mask_is_all_ones = false;
  at::Tensor pixels;   // [batch, channels, height, width]
  at::Tensor labels;   // undefined: no loss
  at::Tensor targets;  // [batch, length], a decoder's tokens; undefined: made from labels
  // What the part before has handed on, for a part of a model that is not the first.
  std::vector<at::Tensor> given = {};
};

struct Output {
  at::Tensor loss;    // undefined without labels
  at::Tensor logits;  // undefined if the loss was chunked or fused
  std::vector<std::pair<at::Tensor, at::Tensor>> cache;  // keys and values, if kept
  // Further tensors that transformers' outputs hold: an encoder's last states, routers' logits.
  std::vector<at::Tensor> more;
  // From a part of a model that is not the last, for the next one: the hidden states first. It has
  // neither loss nor logits.
  std::vector<at::Tensor> handed_on = {};
};

class Model {
 public:
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Runs forward: the whole model, or its part, on the same rows as the other parts. Computes the
  // loss with transformers' own function for the task.
  [[nodiscard]] virtual Output run(const Batch& batch) = 0;

  // All parameters and buffers, under the hub's names.
  [[nodiscard]] virtual torch::nn::Module& module() = 0;
  void train(bool on = true);

  [[nodiscard]] const model::ModelConfig& config() const { return config_; }
  [[nodiscard]] Task task() const { return task_; }
  [[nodiscard]] const Settings& settings() const { return settings_; }
  // From the next run on. Throws UsageError like build().
  void set_checkpointing(const Checkpointing& checkpointing);
  void set_fused_loss(bool fused);

 protected:
  Model(model::ModelConfig config, Task task, const Settings& settings)
      : config_(std::move(config)), task_(task), settings_(settings) {}

 private:
  model::ModelConfig config_;
  Task task_;
  Settings settings_;
};

// Throws InputError naming key and value if a config cannot be right. Throws UsageError for a task
// that this model has no head for (the message names those it has), for a chunked or fused loss
// if the task's loss is not over tokens, and for invalid settings.
[[nodiscard]] std::shared_ptr<Model> build(const model::ModelConfig& config,
                                           const Settings& settings = {});

}  // namespace headroom::models

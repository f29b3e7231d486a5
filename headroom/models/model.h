// Models as they are published: built from a config.json of the Hugging Face hub, operation for
// operation in the order in which transformers' own PyTorch code (4.57.6) runs, because temporaries
// and saved tensors decide how much memory a step takes. Parameters have the hub's names.
//
//   const auto config = formula::read_config("gpt2/config.json");
//   const auto model = libtorch::on(device, [&] { return models::build(config); });
//   model->train();
//   const Batch batch = models::empty_batch(*model, {.rows = 4, .length = 1024}, device);
//   model->run(batch).loss.backward();
//
// Built under libtorch::on(device), weights lie on that device from the start and have no values;
// `initialise` gives them those of a model that is trained from nothing, a checkpoint
// (models/safetensors.h) those of a trained one.
//
// Threads: one model, one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/formula/model_config.h"
#include "headroom/formula/settings.h"
#include "headroom/nn/checkpoint.h"

namespace torch::nn {
class Module;
}

namespace headroom::models {

using formula::Attention;
using formula::Task;

// Which layers keep their input alone and run forward again in the backward pass, and how.
struct Checkpointing {
  nn::Recompute how = nn::Recompute::none;
  int every = 1;  // each layer; 2: every second one
};

struct Settings {
  std::optional<Task> task = {};  // nothing: what the config's `architectures` says
  Attention attention = Attention::sdpa;
  Checkpointing checkpointing = {};
  bool use_cache = false;  // keep keys and values, as transformers does if not told otherwise
  // Tokens at a time of head and loss (nn/chunked_loss.h): then there is a loss and no logits. 0:
  // all at once, as transformers.
  std::int64_t loss_chunk = 0;
};

struct Batch {
  at::Tensor tokens;  // [batch, length]
  at::Tensor mask;    // [batch, length]: 1 where there is a token; undefined: none is given
  // transformers asks the mask for padding. Without data there is no answer; this is it.
  bool mask_is_all_ones = false;
  at::Tensor pixels;   // [batch, channels, height, width]
  at::Tensor labels;   // undefined: no loss
  at::Tensor targets;  // [batch, length], a decoder's tokens; undefined: it makes them of labels
};

struct Output {
  at::Tensor loss;    // undefined without labels
  at::Tensor logits;  // undefined if the loss was taken in chunks
  std::vector<std::pair<at::Tensor, at::Tensor>> cache;  // keys and values, if they are kept
  // What else transformers' outputs hold: an encoder's last states, routers' logits.
  std::vector<at::Tensor> more;
};

class Model {
 public:
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Forward, and the loss with transformers' own function for the task.
  [[nodiscard]] virtual Output run(const Batch& batch) = 0;

  // All parameters and buffers, under the hub's names.
  [[nodiscard]] virtual torch::nn::Module& module() = 0;
  void train(bool on = true);

  [[nodiscard]] const formula::ModelConfig& config() const { return config_; }
  [[nodiscard]] Task task() const { return task_; }
  [[nodiscard]] const Settings& settings() const { return settings_; }

 protected:
  Model(formula::ModelConfig config, Task task, const Settings& settings)
      : config_(std::move(config)), task_(task), settings_(settings) {}

 private:
  formula::ModelConfig config_;
  Task task_;
  Settings settings_;
};

// Throws InputError naming key and value where a config cannot be right, and UsageError for a task
// that this model has no head for (those it has are named), or whose loss has no tokens to chunk,
// and for settings that make no sense.
[[nodiscard]] std::shared_ptr<Model> build(const formula::ModelConfig& config,
                                           const Settings& settings = {});

// What this model can be built for, the task of its config first.
[[nodiscard]] std::vector<Task> tasks_of(const formula::ModelConfig& config);

}  // namespace headroom::models

// What a training configuration describes, made on a device: the model with its weights, what of it
// is trained, the optimizer, and the batches.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/config/resolved.h"
#include "headroom/data/image_set.h"
#include "headroom/data/loader.h"
#include "headroom/models/model.h"
#include "headroom/nn/lora.h"
#include "headroom/optim/optimizer.h"
#include "headroom/train/batches.h"
#include "headroom/train/step_options.h"

namespace headroom::cli {

// The configuration in a request of `headroom train`.
[[nodiscard]] config::Resolved config_of(const Json& request);

// "gpt2"; of a model in a folder, the folder's name.
[[nodiscard]] std::string model_name_of(const config::Resolved& config);

struct TrainingData {
  std::shared_ptr<data::Loader> train, evaluation;  // `evaluation` may be null
  std::int64_t outputs = 0;                         // classes, or tokens; 0: not known
  // Of images on disk, else null: its files and the names of their classes. Not shuffled in
  // `evaluation`.
  std::shared_ptr<const data::ImageSet> images, evaluation_images;
  // "flowers102: 1020 to train on, 1020 to evaluate on", and a line for each thing left out.
  std::string words;
};

// Throws InputError for missing data, with what was expected where and how to get it.
[[nodiscard]] TrainingData data_of(const config::Resolved& config, bool pinned);

// Tensors of the loader as a published model takes them.
[[nodiscard]] train::Batches batches_of(const std::shared_ptr<data::Loader>& loader, bool images);

struct TrainingJob {
  std::shared_ptr<models::Model> model;
  std::optional<nn::Lora> lora;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::string words;  // "llama, 8.03 B parameters, 3.4 M of them trained"
};

// Runs again from its start if memory runs out on the way, with the same random numbers. `say` gets
// a line at each milestone. A run that goes on gets its weights from a checkpoint: `reads_weights`
// is false.
[[nodiscard]] TrainingJob job_on(c10::Device device, const config::Resolved& config,
                                 std::int64_t outputs, bool reads_weights,
                                 const std::function<void(std::string_view)>& say);

[[nodiscard]] train::StepOptions step_options_of(const config::Resolved& config,
                                                 std::int64_t steps);

}  // namespace headroom::cli

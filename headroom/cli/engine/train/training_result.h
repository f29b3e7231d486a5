// What comes out of a training: weights with all that Headroom, transformers and peft need to use
// them, and what a classifier predicts.
#pragma once

#include <string>

#include "headroom/base/json.h"
#include "headroom/cli/engine/train/training_job.h"
#include "headroom/train/evaluation.h"

namespace headroom::cli {

// Saves the trained weights in a folder of `out`, whose path it returns: an adapter as peft's
// files, else safetensors with config.json and, of images, preprocessor_config.json. Throws
// WriteError.
[[nodiscard]] std::string save_result(TrainingJob& job, const TrainingData& data,
                                      const config::Resolved& config);

// An entry for each example: [{"row": 0, "label": 3, "name": "rose", "probability": 0.97, "actual":
// 3, "file": "data/rose/7.jpg"}, ...]. Null if the model predicts no class.
[[nodiscard]] Json predictions_of(const train::Evaluated& result, const TrainingData& data);

}  // namespace headroom::cli

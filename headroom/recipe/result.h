// The results of a training: weights with all that Headroom, transformers and peft need to use
// them, and what a classifier predicts.
#pragma once

#include <filesystem>

#include "headroom/base/json.h"
#include "headroom/recipe/recipe.h"
#include "headroom/train/evaluation.h"

namespace headroom::recipe {

// Saves the trained weights in a folder: an adapter as peft's files, else safetensors with
// config.json and, of images, preprocessor_config.json. Throws WriteError.
void save(const Model& model, const Data& data, const config::Resolved& config,
          const std::filesystem::path& folder);
void save(const Recipe& recipe, const std::filesystem::path& folder);

// An entry for each example: [{"row": 0, "label": 3, "name": "rose", "probability": 0.97, "actual":
// 3, "file": "data/rose/7.jpg"}, ...]. Null if the model predicts no class.
[[nodiscard]] Json predictions_of(const train::Evaluated& result, const Data& data);

}  // namespace headroom::recipe

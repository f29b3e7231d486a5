// The files of a checkpoint, for its writer and its reader (train/checkpoint.h).
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/json.h"
#include "headroom/train/step.h"
#include "headroom/weights/tensor_files.h"

namespace headroom::train::detail {

inline constexpr const char* kState = "state.json";
inline constexpr const char* kModel = "model.safetensors";
inline constexpr const char* kOptimizer = "optimizer.safetensors";
inline constexpr const char* kRandom = "random.safetensors";
inline constexpr const char* kOtherContent = "its content is not what was written";

// The modules of a step's first replica: one, or its stages, which together are the model.
using Modules = std::vector<torch::nn::Module*>;
[[nodiscard]] Modules model_of(Step& step);

// Parameters and buffers under their names.
[[nodiscard]] weights::NamedTensors tensors_of(const torch::nn::Module& module);
// Those of a whole model that this is true for. A tied weight is there once.
[[nodiscard]] weights::NamedTensors parameters_of(
    const Modules& model, const std::function<bool(const at::Tensor&)>& wanted);
[[nodiscard]] weights::NamedTensors buffers_of(const Modules& model);

// An optimizer's parameters by their names in the module; "#3" for the fourth, if the module has
// no such parameter.
[[nodiscard]] std::vector<std::string> names_in(const torch::nn::Module& module,
                                                const optim::Optimizer& optimizer);

[[nodiscard]] Bytes bytes_of(const weights::NamedTensors& tensors);

// The hash of the state without its own hash.
[[nodiscard]] std::string hash_of(const Json& state);

// These throw WriteError.
void make_folder(const std::filesystem::path& folder);
void sync(const std::filesystem::path& path);

}  // namespace headroom::train::detail

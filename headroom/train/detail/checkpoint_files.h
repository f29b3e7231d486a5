// The files of a checkpoint, for its writer and its reader (train/checkpoint.h).
#pragma once

#include <filesystem>
#include <string>

#include "headroom/base/bytes.h"
#include "headroom/base/json.h"
#include "headroom/weights/tensor_files.h"

namespace torch::nn {
class Module;
}

namespace headroom::train::detail {

inline constexpr const char* kState = "state.json";
inline constexpr const char* kModel = "model.safetensors";
inline constexpr const char* kOptimizer = "optimizer.safetensors";
inline constexpr const char* kRandom = "random.safetensors";
inline constexpr const char* kOtherContent = "its content is not what was written";

// Parameters and buffers under their names.
[[nodiscard]] weights::NamedTensors tensors_of(const torch::nn::Module& module);

[[nodiscard]] Bytes bytes_of(const weights::NamedTensors& tensors);

// The hash of the state without its own hash.
[[nodiscard]] std::string hash_of(const Json& state);

// These throw WriteError.
void make_folder(const std::filesystem::path& folder);
void sync(const std::filesystem::path& path);

}  // namespace headroom::train::detail

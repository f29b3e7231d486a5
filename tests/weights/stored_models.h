// Models' weights in files as others might write them, and what loading says to them.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/weights/safetensors.h"
#include "tests/models/tiny_models.h"
#include "tests/weights/safetensors_files.h"

namespace headroom::weights {

using namespace headroom::models;

// Tensors under names that are not the model's, in floats but where told otherwise.
struct Entry {
  std::string name, type;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

inline std::string file_with(const std::vector<Entry>& entries) {
  std::string json = "{", data;
  for (const Entry& each : entries) {
    json += (json.size() > 1 ? ",\"" : "\"") + each.name + R"(":{"dtype":")" + each.type +
            R"(","shape":)" + Json(each.shape).dump() + R"(,"data_offsets":[)" +
            std::to_string(data.size()) + ",";
    data += each.bytes;
    json += std::to_string(data.size()) + "]}";
  }
  return file_of(json + "}", data);
}

inline Entry floats(const std::string& name, const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().to(at::kFloat).contiguous();
  const auto* begin = values.data_ptr<float>();
  return {name, "F32", values.sizes().vec(),
          bytes_of(std::vector<float>(begin, begin + values.numel()))};
}

inline std::vector<Entry> entries_of(
    Model& model, const std::function<std::string(const std::string&)>& renamed) {
  std::vector<Entry> entries;
  for (const auto& [name, tensor] : parameters_of(model))
    if (const std::string as = renamed(name); !as.empty()) entries.push_back(floats(as, tensor));
  return entries;
}

inline std::string same(const std::string& name) {
  return name;
}

// The message of a refused load; "none" if it was not refused.
inline std::string refusal(Model& model, const std::filesystem::path& path,
                           const LoadOptions& options = {}) {
  try {
    load(model, path, options);
  } catch (const InputError& error) {
    return error.what();
  }
  return "none";
}

inline std::shared_ptr<Model> filled(const model::ModelConfig& config,
                                     const Settings& settings = {}) {
  auto model = build(config, settings);
  fill(*model);
  return model;
}

}  // namespace headroom::weights

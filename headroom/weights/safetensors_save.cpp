// The writing side of weights/safetensors.h.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <regex>
#include <system_error>

#include "headroom/base/error.h"
#include "headroom/base/output_file.h"
#include "headroom/weights/detail/safetensors_json.h"
#include "headroom/weights/detail/safetensors_names.h"
#include "headroom/weights/detail/safetensors_writer.h"
#include "headroom/weights/safetensors.h"

namespace headroom::weights {
namespace {

namespace fs = std::filesystem;
using at::Tensor;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

// Fills files in the model's order, each with as many tensors as fit.
std::vector<NamedTensors> shards_of(const NamedTensors& tensors, Bytes most) {
  std::vector<NamedTensors> shards;
  Bytes used;
  for (const auto& each : tensors) {
    const Bytes size{static_cast<std::int64_t>(each.second.nbytes())};
    if (shards.empty() || used + size > most) {
      shards.emplace_back();
      used = {};
    }
    shards.back().push_back(each);
    used += size;
  }
  if (shards.empty()) shards.emplace_back();
  return shards;
}

std::string shard_name(std::size_t index, std::size_t count) {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name;
}

// Writes transformers' index: total sizes, and the file of each tensor.
std::string index_of(const std::vector<NamedTensors>& shards) {
  std::size_t bytes = 0, parameters = 0;
  std::map<std::string, std::string> files;
  for (std::size_t i = 0; i < shards.size(); ++i)
    for (const auto& [name, tensor] : shards[i]) {
      bytes += tensor.nbytes();
      if (!detail::is_counter(name)) parameters += static_cast<std::size_t>(tensor.numel());
      files[name] = shard_name(i, shards.size());
    }
  std::string map;
  for (const auto& [name, file] : files)
    map += (map.empty() ? "\n    " : ",\n    ") + detail::in_quotes(name) + ": \"" + file + "\"";
  return "{\n  \"metadata\": {\n    \"total_parameters\": " + std::to_string(parameters) +
         ",\n    \"total_size\": " + std::to_string(bytes) + "\n  },\n  \"weight_map\": {" + map +
         "\n  }\n}\n";
}

// Removes a folder's former weights, which readers would load instead of the new ones, or mix in.
void remove_former(const fs::path& folder, const std::vector<std::string>& now) {
  static const std::regex shard("model-[0-9]{5}-of-[0-9]{5}\\.safetensors");
  std::error_code error;
  std::vector<fs::path> former;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name == kSingle || name == kIndex || std::regex_match(name, shard);
    if (ours && std::find(now.begin(), now.end(), name) == now.end()) former.push_back(entry);
  }
  for (const fs::path& path : former)
    if (!fs::remove(path, error) && error)
      throw WriteError("save", "cannot remove " + path.string() + ": " + error.message());
}

void save_shards(const fs::path& folder, const std::vector<NamedTensors>& shards) {
  std::vector<std::string> names;
  std::vector<std::unique_ptr<OutputFile>> files;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    names.push_back(shards.size() == 1 ? kSingle : shard_name(i, shards.size()));
    files.push_back(detail::write_safetensors(folder / names.back(), shards[i]));
  }
  if (shards.size() > 1) {
    names.emplace_back(kIndex);
    files.push_back(std::make_unique<OutputFile>(folder / kIndex));
    files.back()->write(index_of(shards));
  }
  for (const auto& file : files) file->sync();
  for (const auto& file : files) file->commit();
  remove_former(folder, names);
}

}  // namespace

void save(models::Model& model, const fs::path& path, const SaveOptions& options) {
  const NamedTensors tensors = detail::state_of(model).tensors;
  if (path.extension() == ".safetensors") return detail::write_safetensors(path, tensors)->commit();
  detail::make_folder(path);
  save_shards(path, shards_of(tensors, options.shard));
}

}  // namespace headroom::weights

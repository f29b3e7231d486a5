// The writing side of weights/safetensors.h.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <system_error>

#include "headroom/base/error.h"
#include "headroom/base/json.h"
#include "headroom/base/output_file.h"
#include "headroom/nn/layers.h"
#include "headroom/nn/module_path.h"
#include "headroom/nn/quantise.h"
#include "headroom/weights/detail/packed_tensors.h"
#include "headroom/weights/detail/safetensors_json.h"
#include "headroom/weights/detail/safetensors_names.h"
#include "headroom/weights/detail/safetensors_writer.h"
#include "headroom/weights/safetensors.h"

namespace headroom::weights {
namespace {

namespace fs = std::filesystem;
using at::Tensor;
using detail::Place;
using detail::State;

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

// ---- Quantised weights ----

// 8-bit scales are saved if those of all weights can be: transformers reads no file with both.
bool has_nested_scales(const State& state) {
  bool any = false;
  for (const Place& place : state.tensors)
    if (const kernels::Packed* const packed = nn::packed_of(place.parameter);
        packed != nullptr && packed->format == kernels::Format::nf4) {
      const bool all = place.rows == 0;
      if (!packed->is_nested() || !(all || detail::can_cut(*packed, place.first, place.rows)))
        return false;
      any = true;
    }
  return any;
}

NamedTensors tensors_of(const State& state) {
  const bool nested = has_nested_scales(state);
  NamedTensors tensors;
  std::map<const c10::TensorImpl*, kernels::Packed> packed;  // experts' once for all
  for (const Place& place : state.tensors) {
    const kernels::Packed* const its = nn::packed_of(place.parameter);
    if (its == nullptr) {
      tensors.emplace_back(place.name, place.view());
      continue;
    }
    const auto [whole, is_new] = packed.emplace(place.parameter.unsafeGetTensorImpl(), *its);
    if (is_new && !nested) whole->second = detail::with_float_scales(*its);
    detail::add_packed(
        tensors, place.name,
        place.rows == 0 ? whole->second : detail::cut(whole->second, place.first, place.rows),
        place.parameter.scalar_type());
  }
  return tensors;
}

// Linear layers that are not quantised: transformers would expect them to be.
void add_left_out(const torch::nn::Module& module, const std::string& path, Json& names) {
  const auto* const linear = dynamic_cast<const nn::Linear*>(&module);
  const auto* const conv = dynamic_cast<const nn::Conv1D*>(&module);
  const bool is_plain = (linear != nullptr && nn::packed_of(linear->weight) == nullptr) ||
                        (conv != nullptr && nn::packed_of(conv->weight) == nullptr);
  const std::size_t dot = path.rfind('.');
  const std::string name = path.substr(dot == std::string::npos ? 0 : dot + 1);
  if (is_plain && name != "lora_A" && name != "lora_B") names.push_back(path);
  for (const auto& child : module.named_children())
    add_left_out(*child.value(), nn::joined(path, child.key()), names);
}

const Place* first_packed(const State& state) {
  for (const Place& place : state.tensors)
    if (nn::packed_of(place.parameter) != nullptr) return &place;
  return nullptr;
}

// A weight that several parts have is there once.
State state_of(const std::vector<models::Model*>& parts) {
  State all;
  std::set<std::string> names;
  for (models::Model* const part : parts)
    for (Place& place : detail::state_of(*part).tensors)
      if (names.insert(place.name).second) all.tensors.push_back(std::move(place));
  return all;
}

}  // namespace

void save(const std::vector<models::Model*>& parts, const fs::path& path,
          const SaveOptions& options) {
  const NamedTensors tensors = tensors_of(state_of(parts));
  if (path.extension() == ".safetensors") return detail::write_safetensors(path, tensors)->commit();
  detail::make_folder(path);
  save_shards(path, shards_of(tensors, options.shard));
}

std::optional<std::string> quantisation_config(const std::vector<models::Model*>& parts) {
  const State state = state_of(parts);
  const Place* const first = first_packed(state);
  if (first == nullptr) return {};
  const bool is_4_bit = nn::packed_of(first->parameter)->format == kernels::Format::nf4;
  Json left_out = Json::array();
  for (models::Model* const part : parts) add_left_out(part->module(), "", left_out);
  Json config{{"quant_method", "bitsandbytes"},
              {"load_in_4bit", is_4_bit},
              {"load_in_8bit", !is_4_bit},
              {"llm_int8_skip_modules", left_out}};
  if (is_4_bit) {
    config["bnb_4bit_quant_type"] = "nf4";
    config["bnb_4bit_use_double_quant"] = has_nested_scales(state);
    config["bnb_4bit_compute_dtype"] = detail::name_of(first->parameter.scalar_type());
    config["bnb_4bit_quant_storage"] = "uint8";
  }
  return config.dump();
}

}  // namespace headroom::weights

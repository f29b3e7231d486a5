#include "headroom/model/stored_precision.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

namespace headroom::model {
namespace {

template <typename Choice>
bool is_choice(const std::string& word) {
  const std::vector<std::string>& all = choices<Choice>();
  return std::find(all.begin(), all.end(), word) != all.end();
}

// "bfloat16" from `dtype` or, in older files, `torch_dtype`.
std::optional<std::string> stored_dtype(const ModelConfig& config) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (!config.has(key) || !config.at(key).is_string()) continue;
    const std::string word = config.text(key);
    return word.starts_with("torch.") ? word.substr(6) : word;
  }
  return {};
}

// "4bit", "8bit", or a method's name.
std::optional<std::string> stored_bits(const ModelConfig& config) {
  constexpr const char* kKey = "quantization_config";
  if (!config.has(kKey) || !config.at(kKey).is_object()) return {};
  const Json& said = config.at(kKey);
  const auto is = [&](const char* key, const Json& value) {
    return said.contains(key) && said.at(key) == value;
  };
  if (is("load_in_4bit", true) || is("bits", 4)) return "4bit";
  if (is("load_in_8bit", true) || is("bits", 8)) return "8bit";
  const auto method = said.find("quant_method");
  return method != said.end() && method->is_string() ? method->get<std::string>() : "other bits";
}

std::string about_bits(const ModelConfig& config, const Settings& settings,
                       const std::string& bits) {
  const std::string text = config.source() + " has a quantization_config (" + bits + "), and " +
                           std::string(to_string(settings.dtype)) + " weights are counted";
  if (!is_choice<Quantize>(bits)) return text + ": Headroom counts weights in 8bit and 4bit only";
  const bool adapters = settings.lora_rank > 0 || settings.mode != Mode::train;
  return text + "; to count as the file says: --quantize " + bits +
         (adapters ? "" : " --lora-rank 8");
}

// How transformers loads the weights if no type is given.
std::string usual_loading(Transformers version) {
  return version == Transformers::v5
             ? ", though transformers 5 loads the file's type unless another is given"
             : ", as transformers 4.57 loads it unless another is given";
}

}  // namespace

std::vector<std::string> unheeded_precision(const ModelConfig& config, const Settings& settings) {
  std::vector<std::string> notes;
  const std::optional<std::string> dtype = stored_dtype(config), bits = stored_bits(config);
  const bool wide = settings.dtype == Dtype::float32 && settings.autocast == Autocast::none;
  if (dtype && *dtype != "float32" && is_choice<Dtype>(*dtype) && wide)
    notes.push_back(config.source() + " has torch_dtype " + *dtype + ", and float32 is counted" +
                    usual_loading(settings.transformers) + "; to count as the file says: --dtype " +
                    *dtype);
  if (bits && settings.quantize == Quantize::none)
    notes.push_back(about_bits(config, settings, *bits));
  return notes;
}

}  // namespace headroom::model

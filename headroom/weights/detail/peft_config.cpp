#include "headroom/weights/detail/peft_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "headroom/base/text.h"

namespace headroom::weights::detail {
namespace {

bool is_last_part(const std::string& name, const std::string& of) {
  return of == name || of.ends_with("." + name);
}

// ---- Reading

// The file's keys. Each value is taken once; a key that nothing takes must be empty.
class PeftKeys {
 public:
  explicit PeftKeys(const std::filesystem::path& path)
      : source_(path.string()), json_(parse_json(read_input(path), source_)) {
    if (!json_.is_object())
      throw InputError(expectation("load_adapter", "an object in " + source_, to_line(json_)));
  }

  [[noreturn]] void refuse(const std::string& key, const std::string& expected, const Json& value,
                           const std::string& to_try = {}) const {
    throw InputError(expectation("load_adapter", expected + " for " + key + " in " + source_,
                                 beginning(to_line(value), 200), to_try));
  }

  [[nodiscard]] Json value(const std::string& key) const { return json_.value(key, Json()); }

  Json take(const std::string& key) {
    const auto found = json_.find(key);
    if (found == json_.end()) return {};
    Json value = *found;
    json_.erase(found);
    return value;
  }

  bool flag(const std::string& key) {
    const Json value = take(key);
    if (!value.is_null() && !value.is_boolean()) refuse(key, "true or false", value);
    return value.is_boolean() && value.get<bool>();
  }

  double number(const std::string& key, double otherwise) {
    const Json value = take(key);
    if (value.is_null()) return otherwise;
    if (!value.is_number()) refuse(key, "a number", value);
    return value.get<double>();
  }

  std::regex pattern(const std::string& key, const std::string& text) const {
    try {
      return std::regex(text);
    } catch (const std::regex_error&) {
      refuse(key, "a regular expression without lookbehind and named groups", text,
             "a list of names");
    }
  }

  PeftNames names(const std::string& key) {
    const Json value = take(key);
    PeftNames all;
    if (value.is_string()) {
      all.is_pattern = true;
      all.pattern = pattern(key, value.get<std::string>());
    } else if (!value.is_null() && !value.is_array()) {
      refuse(key, "a list of names or a regular expression", value);
    }
    if (value.is_array())
      for (const Json& name : value) {
        if (!name.is_string()) refuse(key, "names", name);
        all.names.push_back(name.get<std::string>());
      }
    return all;
  }

  PeftValues values(const std::string& key) {
    const Json value = take(key);
    if (!value.is_null() && !value.is_object()) refuse(key, "an object", value);
    PeftValues all;
    for (const auto& [name, number] : value.items()) {
      if (!number.is_number()) refuse(key, "numbers", number);
      all.emplace_back(pattern(key, "(.*\\.)?(" + name + ")"), number.get<double>());
    }
    return all;
  }

  // peft adds keys with its versions, and each changes nothing while it is empty.
  void refuse_the_rest() const {
    for (const auto& [key, value] : json_.items()) {
      const bool empty =
          value.is_null() || value == Json(false) || (value.is_structured() && value.empty());
      if (!empty) refuse(key, "nothing, since this is not supported,", value);
    }
  }

 private:
  std::string source_;
  Json json_;
};

std::int64_t rank_from(const PeftKeys& keys, const std::string& key, double number) {
  if (!(number >= 1 && number <= 1e9) || number != std::floor(number))
    keys.refuse(key, "a rank of 1 or more", number);
  return static_cast<std::int64_t>(number);
}

// Keys whose values change no result.
constexpr const char* kWithoutEffect[] = {"auto_mapping",     "base_model_name_or_path",
                                          "fan_in_fan_out",   "inference_mode",
                                          "megatron_core",    "peft_version",
                                          "revision",         "task_type",
                                          "qalora_group_size"};

void check_kind(PeftKeys& keys) {
  if (const Json type = keys.take("peft_type"); type != "LORA")
    keys.refuse("peft_type", "LORA", type);
  if (const Json bias = keys.take("bias"); !bias.is_null() && bias != "none")
    keys.refuse("bias", "none", bias);
  // The others change the weights of the model, too.
  const Json first = keys.take("init_lora_weights");
  const bool plain = first.is_null() || first.is_boolean() || first == "gaussian" ||
                     first == "orthogonal" || first == "eva";
  if (!plain)
    keys.refuse("init_lora_weights", "true, gaussian, orthogonal or eva", first,
                "peft's path_initial_model_for_weight_conversion, which saves a plain LoRA");
  if (plain && first == "eva") (void)keys.take("eva_config");
}

// ---- Writing

// Other characters could have a meaning.
std::string escaped(const std::string& name) {
  std::string text;
  for (const char c : name) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '_' || static_cast<unsigned char>(c) >= 0x80;
    text += plain ? std::string(1, c) : std::string("\\") + c;
  }
  return text;
}

std::string pattern_of(const std::vector<std::string>& layers) {
  std::vector<std::string> all;
  for (const std::string& layer : layers) all.push_back(escaped(layer));
  return join(all, "|");
}

// The shortest names that select the adapters' layers and nothing else: "q_proj" if all layers of
// this name have adapters, else the whole path. peft takes a name in a list for the last part of a
// path, too, so where a whole path is the last part of another one, a regular expression.
Json targets_of(const nn::Lora& lora) {
  const auto selects_another = [&](const std::string& name) {
    return std::any_of(lora.others().begin(), lora.others().end(),
                       [&](const std::string& other) { return is_last_part(name, other); });
  };
  std::set<std::string> names;
  const std::vector<std::string> layers = lora.layers();
  for (const std::string& layer : layers) {
    const std::string last = layer.substr(layer.rfind('.') + 1);
    const std::string& name = to_integer(last) || selects_another(last) ? layer : last;
    if (selects_another(name)) return pattern_of(layers);
    names.insert(name);
  }
  return names;
}

// peft's own files have whole numbers.
Json number_of(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return static_cast<std::int64_t>(value);
  return value;
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

}  // namespace

bool PeftConfig::saves(const std::string& parameter) const {
  for (std::size_t dot = parameter.find('.'); dot != std::string::npos;
       dot = parameter.find('.', dot + 1))
    for (const std::string& module : modules)
      if (is_last_part(module, parameter.substr(0, dot))) return true;
  return false;
}

bool PeftNames::match(const std::string& layer) const {
  if (is_pattern) return std::regex_match(layer, pattern);
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return is_last_part(name, layer); });
}

PeftConfig read_peft_config(const std::filesystem::path& path) {
  PeftKeys keys(path);
  check_kind(keys);
  PeftConfig config{.source = path.string()};
  config.rank = rank_from(keys, "r", keys.number("r", 8));
  config.alpha = keys.number("lora_alpha", 8);
  config.dropout = keys.number("lora_dropout", 0);
  if (!(config.dropout >= 0 && config.dropout < 1))
    keys.refuse("lora_dropout", "0 to below 1", config.dropout);
  config.rank_stabilised = keys.flag("use_rslora");
  config.ranks = keys.values("rank_pattern");
  for (const auto& [pattern, rank] : config.ranks) (void)rank_from(keys, "rank_pattern", rank);
  config.alphas = keys.values("alpha_pattern");
  config.excluded = keys.names("exclude_modules");
  const Json targets = keys.value("target_modules");
  config.all_linear = targets.is_string() && lower(targets.get<std::string>()) == "all-linear";
  config.targets = keys.names("target_modules");
  if (!config.targets.is_pattern && config.targets.names.empty())
    keys.refuse("target_modules", "names of layers", targets);
  config.modules = keys.names("modules_to_save").names;
  for (const char* key : kWithoutEffect) (void)keys.take(key);
  keys.refuse_the_rest();
  return config;
}

std::vector<nn::LoraLayer> layers_of(const PeftConfig& config,
                                     const std::vector<std::string>& layers,
                                     const std::vector<std::string>& linear) {
  const auto value = [](const PeftValues& values, const std::string& layer, double otherwise) {
    for (const auto& [pattern, number] : values)
      if (std::regex_match(layer, pattern)) return number;
    return otherwise;
  };
  const auto is_target = [&](const std::string& layer) {
    if (!config.all_linear) return config.targets.match(layer);
    return std::find(linear.begin(), linear.end(), layer) != linear.end();
  };
  std::vector<nn::LoraLayer> all;
  for (const std::string& layer : layers)
    if (!config.excluded.match(layer) && is_target(layer))
      all.push_back({.name = layer,
                     .rank = static_cast<std::int64_t>(
                         value(config.ranks, layer, static_cast<double>(config.rank))),
                     .alpha = value(config.alphas, layer, config.alpha)});
  return all;
}

std::string peft_config_of(const nn::Lora& lora, const AdapterInfo& info) {
  Json ranks = Json::object(), alphas = Json::object();
  for (const nn::LoraLayer& layer : lora.adapters()) {
    const std::string key = "^" + escaped(layer.name);
    if (layer.rank != lora.options().rank) ranks[key] = layer.rank;
    if (layer.alpha != lora.options().alpha) alphas[key] = number_of(layer.alpha);
  }
  Json mapping;
  if (info.task_type.empty() && !info.base_class.empty())
    mapping = {{"base_model_class", info.base_class}, {"parent_library", "transformers"}};
  const Json file = {{"alpha_pattern", alphas},
                     {"auto_mapping", mapping},
                     {"base_model_name_or_path", text_or_null(info.base_model)},
                     {"bias", "none"},
                     {"fan_in_fan_out", lora.has_conv1d()},
                     {"inference_mode", true},
                     {"init_lora_weights", true},
                     {"layers_pattern", nullptr},
                     {"layers_to_transform", nullptr},
                     {"lora_alpha", number_of(lora.options().alpha)},
                     {"lora_dropout", lora.options().dropout},
                     {"modules_to_save", info.modules.empty() ? Json() : Json(info.modules)},
                     {"peft_type", "LORA"},
                     {"r", lora.options().rank},
                     {"rank_pattern", ranks},
                     {"revision", nullptr},
                     {"target_modules", targets_of(lora)},
                     {"task_type", text_or_null(info.task_type)},
                     {"use_dora", false},
                     {"use_rslora", lora.options().rank_stabilised}};
  return file.dump(2);
}

}  // namespace headroom::weights::detail

#include "headroom/model/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/text.h"
#include "headroom/model/detail/embedded.h"

namespace headroom::model {
namespace {

const Json& all_types() {
  static const Json types =
      parse_json(embedded::model_types_json(), "model_types.json").at("types");
  return types;
}

std::string type_of(const Json& file, const std::string& source) {
  if (!file.is_object())
    throw InputError(expectation("read_config", "a JSON object in " + source, file.type_name()));
  const auto type = file.find("model_type");
  if (type == file.end() || !type->is_string())
    throw InputError(expectation("read_config", "a key `model_type` in " + source, "none",
                                 "the config.json of a model on the Hugging Face hub"));
  std::string name = type->get<std::string>();
  if (all_types().contains(name)) return name;
  const std::optional<std::string> near = nearest(name, model_types());
  throw InputError(expectation(
      "read_config", "a model type that Headroom builds in " + source, name,
      fmt::format("{}a function that returns the model (train.py:make_step), which works for any "
                  "type; Headroom builds {}",
                  near ? *near + " if that is meant, or " : "", join(model_types(), ", "))));
}

// Keys that say how weights are stored. They do not shape the model and have no default
// (stored_precision.h).
constexpr std::array<const char*, 3> kOfStorage{"dtype", "torch_dtype", "quantization_config"};

// Limits above any real model, low enough that the memory of a run can be counted in 64 bits. The
// first entry whose word is part of the key applies.
struct Limit {
  std::string_view word;
  long long most;
};
constexpr std::array<Limit, 13> kLimits{{{"layer", 1'000},
                                         {"depths", 1'000},
                                         {"stages", 1'000},
                                         {"experts", 4096},
                                         {"channels", 4096},
                                         {"patch", 4096},
                                         {"image", 1 << 14},
                                         {"vocab", 1 << 26},
                                         {"labels", 1 << 26},
                                         {"position", 1 << 26},
                                         {"window", 1 << 26},
                                         {"token_id", 1 << 26},
                                         {"", 1 << 20}}};

long long most_of(std::string_view key) {
  const auto limit = std::find_if(kLimits.begin(), kLimits.end(), [&](const Limit& one) {
    return key.find(one.word) != std::string_view::npos;
  });
  return limit->most;
}

// Widths that may be null, but not 0.
constexpr std::array<std::string_view, 4> kNeverZero{"head_dim", "intermediate_size", "n_inner",
                                                     "word_embed_proj_dim"};

long long least_of(std::string_view key) {
  return std::find(kNeverZero.begin(), kNeverZero.end(), key) != kNeverZero.end() ? 1 : 0;
}

bool is_count(std::string_view key, const Json& value, long long least) {
  return value.is_number_integer() && value >= least && value <= most_of(key);
}

std::string range_of(std::string_view key, long long least) {
  return fmt::format("a whole number of at least {} and at most {}", least, most_of(key));
}

// The number of labels of a classifier; transformers counts the entries of `id2label`.
long long labels_of(const Json& file, const std::string& source) {
  if (const auto names = file.find("id2label"); names != file.end() && names->is_object())
    return static_cast<long long>(names->size());
  const auto count = file.find("num_labels");
  if (count == file.end() || !count->is_number_integer() || *count <= 0) return 2;
  if (!is_count("num_labels", *count, 1))
    throw InputError(expectation(
        "read_config", fmt::format("{} for `num_labels` in {}", range_of("num_labels", 1), source),
        to_line(*count)));
  return count->get<long long>();
}

std::vector<std::string> strings_in(const Json& file, const char* key) {
  std::vector<std::string> strings;
  if (const auto list = file.find(key); list != file.end() && list->is_array())
    for (const Json& item : *list)
      if (item.is_string()) strings.push_back(item.get<std::string>());
  return strings;
}

// The file's value for a key, under its own name or transformers' general one; null if absent.
const Json* said(const Json& file, const Json& other_names, const std::string& key) {
  if (const auto own = file.find(key); own != file.end()) return &*own;
  const auto other = other_names.find(key);
  if (other == other_names.end()) return nullptr;
  const auto general = file.find(other->get<std::string>());
  return general == file.end() ? nullptr : &*general;
}

// transformers 5 writes a config's rotary settings into one object, `rope_parameters`. Takes them
// out to the keys that this model type has for them, unless the file has those as well.
Json with_rope_parameters_apart(Json file, const Json& defaults) {
  const auto found = file.find("rope_parameters");
  if (found == file.end() || !found->is_object()) return file;
  const Json rope = *found;
  const auto take = [&](const char* from, std::initializer_list<const char*> keys) {
    for (const char* key : keys)
      if (rope.contains(from) && defaults.contains(key) && !file.contains(key))
        file[key] = rope.at(from);
  };
  take("rope_theta", {"rope_theta", "rotary_emb_base"});
  take("partial_rotary_factor", {"partial_rotary_factor", "rotary_pct"});
  const Json kind = rope.value("rope_type", Json("default"));
  if (kind != "default" && defaults.contains("rope_scaling") && !file.contains("rope_scaling"))
    file["rope_scaling"] = rope;
  return file;
}

}  // namespace

ModelConfig::ModelConfig(const Json& file, std::string source)
    : type_(type_of(file, source)),
      source_(std::move(source)),
      file_(std::make_shared<const Json>(file)),
      architectures_(strings_in(file, "architectures")),
      labels_(labels_of(file, source_)) {
  const Json& known = all_types().at(type_);
  const Json plain = with_rope_parameters_apart(file, known.at("defaults"));
  auto values = std::make_shared<Json>(known.at("defaults"));
  for (auto& [key, value] : values->items()) {
    if (const Json* given = said(plain, known.at("other_names"), key))
      value = *given;
    else
      defaulted_.push_back(fmt::format("{} = {}", key, to_line(value)));
  }
  for (const char* key : kOfStorage)
    if (const auto given = file.find(key); given != file.end()) (*values)[key] = *given;
  values_ = std::move(values);
}

const Json& ModelConfig::at(std::string_view key) const {
  const auto found = values_->find(std::string(key));
  if (found == values_->end())
    throw InternalError(
        expectation("ModelConfig", "a key of model type " + type_, std::string(key)));
  return *found;
}

void ModelConfig::refuse(std::string_view key, std::string_view expected) const {
  throw InputError(expectation(
      "read_config", fmt::format("{} for `{}` in {}", expected, key, source_), to_line(at(key))));
}

long long ModelConfig::count(std::string_view key) const {
  const long long least = least_of(key);
  if (!is_count(key, at(key), least)) refuse(key, range_of(key, least));
  return at(key).get<long long>();
}

long long ModelConfig::at_least_1(std::string_view key) const {
  if (!is_count(key, at(key), 1)) refuse(key, range_of(key, 1));
  return at(key).get<long long>();
}

double ModelConfig::number(std::string_view key) const {
  if (!at(key).is_number()) refuse(key, "a number");
  // Dropout under all its names: attention_dropout, resid_pdrop, layerdrop.
  const bool is_share = key.find("drop") != std::string_view::npos;
  if (is_share && (at(key) < 0 || at(key) > 1)) refuse(key, "a number from 0 to 1");
  return at(key).get<double>();
}

bool ModelConfig::flag(std::string_view key) const {
  if (!at(key).is_boolean()) refuse(key, "true or false");
  return at(key).get<bool>();
}

std::string ModelConfig::text(std::string_view key) const {
  if (!at(key).is_string()) refuse(key, "a text");
  return at(key).get<std::string>();
}

std::vector<long long> ModelConfig::counts(std::string_view key) const {
  std::vector<long long> all;
  if (!at(key).is_array()) refuse(key, "a list of whole numbers");
  for (const Json& item : at(key)) {
    if (!is_count(key, item, 0)) refuse(key, "a list, each " + range_of(key, 0));
    all.push_back(item.get<long long>());
  }
  return all;
}

std::vector<std::string> ModelConfig::texts(std::string_view key) const {
  std::vector<std::string> all;
  if (!at(key).is_array()) refuse(key, "a list of texts");
  for (const Json& item : at(key)) {
    if (!item.is_string()) refuse(key, "a list of texts");
    all.push_back(item.get<std::string>());
  }
  return all;
}

bool ModelConfig::has(std::string_view key) const {
  return values_->contains(std::string(key));
}

bool ModelConfig::is_null(std::string_view key) const {
  return at(key).is_null();
}

std::optional<long long> ModelConfig::optional_count(std::string_view key) const {
  if (is_null(key)) return {};
  return count(key);
}

ModelConfig ModelConfig::with_labels(long long labels) const {
  ModelConfig config = *this;
  config.labels_ = labels;
  return config;
}

ModelConfig read_config(const std::filesystem::path& path) {
  const std::filesystem::path file =
      std::filesystem::is_directory(path) ? path / "config.json" : path;
  return ModelConfig(parse_json(read_input(file), file.string()), file.string());
}

std::vector<std::string> model_types() {
  std::vector<std::string> names;
  for (const auto& [name, unused] : all_types().items()) names.push_back(name);
  return names;
}

}  // namespace headroom::model

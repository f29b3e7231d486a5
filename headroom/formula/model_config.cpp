#include "headroom/formula/model_config.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/text.h"
#include "headroom/formula/detail/embedded.h"

namespace headroom::formula {
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
  const std::string name = type->get<std::string>();
  if (all_types().contains(name)) return name;
  const std::optional<std::string> near = nearest(name, model_types());
  throw InputError(expectation("read_config", "a model type that Headroom builds in " + source,
                               name, near ? *near : "one of " + join(model_types(), ", ")));
}

// The labels of a classifier: transformers counts the names that a file gives them.
long long labels_of(const Json& file) {
  if (const auto names = file.find("id2label"); names != file.end() && names->is_object())
    return static_cast<long long>(names->size());
  if (const auto count = file.find("num_labels");
      count != file.end() && count->is_number_integer() && *count > 0)
    return count->get<long long>();
  return 2;
}

std::vector<std::string> strings_in(const Json& file, const char* key) {
  std::vector<std::string> strings;
  if (const auto list = file.find(key); list != file.end() && list->is_array())
    for (const Json& item : *list)
      if (item.is_string()) strings.push_back(item.get<std::string>());
  return strings;
}

// What the file says for a key, under its own name or transformers' general one; null: nothing.
const Json* said(const Json& file, const Json& other_names, const std::string& key) {
  if (const auto own = file.find(key); own != file.end()) return &*own;
  const auto other = other_names.find(key);
  if (other == other_names.end()) return nullptr;
  const auto general = file.find(other->get<std::string>());
  return general == file.end() ? nullptr : &*general;
}

constexpr long long kMostCount = 1LL << 48;

bool is_count(const Json& value) {
  return value.is_number_integer() && value >= 0 && value <= kMostCount;
}

}  // namespace

ModelConfig::ModelConfig(const Json& file, std::string source)
    : type_(type_of(file, source)),
      source_(std::move(source)),
      architectures_(strings_in(file, "architectures")),
      labels_(labels_of(file)) {
  const Json& known = all_types().at(type_);
  auto values = std::make_shared<Json>(known.at("defaults"));
  for (auto& [key, value] : values->items()) {
    if (const Json* given = said(file, known.at("other_names"), key))
      value = *given;
    else
      defaulted_.push_back(key + " = " + to_line(value));
  }
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
      "read_config", std::string(expected) + " for `" + std::string(key) + "` in " + source_,
      to_line(at(key))));
}

long long ModelConfig::count(std::string_view key) const {
  if (!is_count(at(key))) refuse(key, "a whole number");
  return at(key).get<long long>();
}

long long ModelConfig::at_least_1(std::string_view key) const {
  if (!is_count(at(key)) || at(key) < 1) refuse(key, "a whole number of at least 1");
  return at(key).get<long long>();
}

double ModelConfig::number(std::string_view key) const {
  if (!at(key).is_number()) refuse(key, "a number");
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
    if (!is_count(item)) refuse(key, "a list of whole numbers");
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

}  // namespace headroom::formula

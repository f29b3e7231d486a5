#include "headroom/model/model_catalogue.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/model/detail/embedded.h"

namespace headroom::model {
namespace {

const Json& file() {
  static const Json models = parse_json(embedded::models_json(), "models.json");
  return models;
}

std::string plain(std::string_view name) {
  std::string text = lower(name);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

bool is_called(const CatalogueModel& model, const std::string& name) {
  const auto same = [&](const std::string& spelling) { return plain(spelling) == name; };
  return same(model.name) || std::any_of(model.aliases.begin(), model.aliases.end(), same);
}

NamedModel taken(const CatalogueModel& model) {
  return {model.name, ModelConfig(file().at("models").at(model.name).at("config"), model.name), {}};
}

// ---- Sizes ----

// "7B", "1.3b", "350M"; 0: not a size.
double size_in(std::string_view text) {
  if (text.size() < 2) return 0;
  const char unit = text.back();
  const double factor = unit == 'b' || unit == 'B' ? 1e9 : unit == 'm' || unit == 'M' ? 1e6 : 0;
  const auto number = to_number(text.substr(0, text.size() - 1));
  return number && *number > 0 ? *number * factor : 0;
}

// The models that a bare size can mean, one for each usual size.
constexpr std::array<std::string_view, 13> kStandard{
    "gpt2",        "gpt2-medium",   "gpt2-large",    "opt-1.3b",     "opt-2.7b",
    "llama-2-7b",  "pythia-12b",    "llama-2-13b",   "gpt-neox-20b", "qwen2.5-32b",
    "llama-2-70b", "mixtral-8x22b", "llama-3.1-405b"};

double distance(const CatalogueModel& model, double size) {
  return std::abs(std::log(static_cast<double>(model.parameters) / size));
}

std::string billions(long long parameters) {
  std::array<char, 32> text{};
  if (parameters >= 1'000'000'000)
    std::snprintf(text.data(), text.size(), "%.2f B", static_cast<double>(parameters) / 1e9);
  else
    std::snprintf(text.data(), text.size(), "%.0f M", static_cast<double>(parameters) / 1e6);
  return text.data();
}

NamedModel of_size(std::string_view text, double size) {
  const CatalogueModel* best = nullptr;
  for (const CatalogueModel& model : catalogue_models()) {
    if (std::find(kStandard.begin(), kStandard.end(), model.name) == kStandard.end()) continue;
    if (best == nullptr || distance(model, size) < distance(*best, size)) best = &model;
  }
  NamedModel model = taken(*best);
  model.note = std::string(text) + " means the shape of " + best->name + ", " +
               billions(best->parameters) + " parameters";
  return model;
}

[[noreturn]] void unknown(std::string_view text) {
  std::vector<std::string> names;
  for (const CatalogueModel& model : catalogue_models()) names.push_back(model.name);
  const std::optional<std::string> near = nearest(plain(text), names);
  throw UsageError(expectation("model_named",
                               "a config.json, a folder with one, a model's name (headroom models "
                               "--names) or a size such as 7B",
                               text, near ? *near : "llama-3.1-8b"));
}

}  // namespace

const std::vector<CatalogueModel>& catalogue_models() {
  static const std::vector<CatalogueModel> all = [] {
    std::vector<CatalogueModel> models;
    for (const auto& [name, model] : file().at("models").items())
      models.push_back({name, model.at("aliases").get<std::vector<std::string>>(),
                        model.at("parameters").get<long long>()});
    return models;
  }();
  return all;
}

NamedModel model_named(std::string_view text) {
  const std::filesystem::path path{std::string(text)};
  std::error_code error;
  if (std::filesystem::exists(path, error) || path.extension() == ".json") {
    ModelConfig config = read_config(path);
    return {config.source(), std::move(config), {}};
  }
  const std::string name = plain(text);
  for (const CatalogueModel& model : catalogue_models())
    if (is_called(model, name)) return taken(model);
  if (const double size = size_in(text); size > 0) return of_size(text, size);
  unknown(text);
}

}  // namespace headroom::model

#include "headroom/recipe/result.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "headroom/base/file.h"
#include "headroom/model/tasks.h"
#include "headroom/weights/adapter_files.h"
#include "headroom/weights/safetensors.h"

namespace headroom::recipe {
namespace {

namespace fs = std::filesystem;

std::string name_of(std::int64_t label, const Data& data) {
  const auto i = static_cast<std::size_t>(label);
  return data.images && i < data.images->classes().size() ? data.images->classes()[i]
                                                          : "LABEL_" + std::to_string(label);
}

// transformers' config.json.
Json config_of(const models::Model& model, const Data& data) {
  Json file = model.config().file();
  const model::Task task = model.task();
  for (const char* key : {"torch_dtype", "quantization_config", "num_labels", "_name_or_path"})
    file.erase(key);
  file["architectures"] = {model::architecture_of(model.config(), task)};
  file["dtype"] = "float32";
  if (model::is_over_tokens(task)) return file;
  file["id2label"] = file["label2id"] = Json::object();
  for (std::int64_t label = 0; label < model.config().labels(); ++label) {
    file["id2label"][std::to_string(label)] = name_of(label, data);
    file["label2id"][name_of(label, data)] = label;
  }
  if (!file.contains("problem_type") || file["problem_type"].is_null())
    file["problem_type"] = "single_label_classification";
  return file;
}

// transformers' processor that scales and crops an image as data::ImageSet does for evaluation.
Json preprocessor_of(const data::ImageOptions& images) {
  const auto side = images.side;
  const auto edge = std::llround(static_cast<double>(side) / images.crop);
  return {{"image_processor_type", "BitImageProcessor"},
          {"do_convert_rgb", true},
          {"do_resize", true},
          {"size", {{"shortest_edge", edge}}},
          {"resample", 2},  // bilinear
          {"do_center_crop", true},
          {"crop_size", {{"height", side}, {"width", side}}},
          {"do_rescale", true},
          {"rescale_factor", 1.0 / 255},
          {"do_normalize", true},
          {"image_mean", images.mean},
          {"image_std", images.deviation}};
}

void describe_images(const fs::path& folder, const Data& data) {
  if (data.images)
    write_file_atomically(folder / "preprocessor_config.json",
                          preprocessor_of(data.images->options()).dump(1) + "\n");
}

const char* peft_task(model::Task task) {
  switch (task) {
    case model::Task::causal_lm:
      return "CAUSAL_LM";
    case model::Task::seq2seq_lm:
      return "SEQ_2_SEQ_LM";
    case model::Task::sequence_classification:
      return "SEQ_CLS";
    default:
      return "";
  }
}

// With the config of the model that it adapts: the number and names of classes are the run's, not
// the base's.
void save_adapter(const Model& model, const Data& data, const config::Resolved& config,
                  const fs::path& folder) {
  const train::RankModels stages = model.first_replica();
  const models::Model& first = *stages.front();
  weights::AdapterInfo info{.base_model = config::base_name_of(config),
                            .task_type = peft_task(first.task()),
                            .base_class = model::architecture_of(first.config(), first.task())};
  std::vector<nn::Lora> adapters;
  std::set<std::string> heads, names;  // a tied weight is in two stages
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    adapters.push_back(*model.adapters[stage]);
    for (const auto& parameter : stages[stage]->module().named_parameters())
      if (parameter->requires_grad() && parameter.key().find("lora_") == std::string::npos &&
          names.insert(parameter.key()).second) {
        heads.insert(parameter.key().substr(0, parameter.key().find('.')));
        info.parameters.emplace_back(parameter.key(), parameter->detach());
      }
  }
  info.modules.assign(heads.begin(), heads.end());
  weights::save_adapter(nn::Lora::joined(adapters), folder, info);
  write_file_atomically(folder / "config.json", config_of(first, data).dump(1) + "\n");
}

}  // namespace

void save(const Model& model, const Data& data, const config::Resolved& config,
          const fs::path& folder) {
  const train::RankModels stages = model.first_replica();
  if (model.adapters.front()) {
    save_adapter(model, data, config, folder);
  } else {
    std::vector<models::Model*> parts;
    for (const auto& stage : stages) parts.push_back(stage.get());
    weights::save(parts, folder);
    Json file = config_of(*stages.front(), data);
    if (const auto quantised = weights::quantisation_config(parts))
      file["quantization_config"] = Json::parse(*quantised);
    write_file_atomically(folder / "config.json", file.dump(1) + "\n");
  }
  describe_images(folder, data);
}

void save(const Recipe& recipe, const fs::path& folder) {
  save(recipe.model, recipe.data, recipe.training.config, folder);
}

Json predictions_of(const train::Evaluated& result, const Data& data) {
  if (result.predictions.empty()) return {};
  Json all = Json::array();
  for (std::size_t row = 0; row < result.predictions.size(); ++row) {
    const train::Prediction& one = result.predictions[row];
    Json entry{{"row", row},
               {"label", one.label},
               {"name", name_of(one.label, data)},
               {"probability", one.probability}};
    if (data.evaluation_images && row < data.evaluation_images->images().size()) {
      const data::LabelledImage& image = data.evaluation_images->images()[row];
      entry["actual"] = image.label;
      entry["file"] = image.path.string();
    }
    all.push_back(std::move(entry));
  }
  return all;
}

}  // namespace headroom::recipe

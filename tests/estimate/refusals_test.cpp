// The forecast refuses the configurations that the dry run refuses, in the same words: one key of a
// small model's config.json changes at a time.
#include <gmock/gmock.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "headroom/base/error.h"
#include "headroom/estimate/training_step.h"
#include "headroom/forecast/closed_form.h"
#include "headroom/model/tasks.h"
#include "tests/estimate/small_models.h"

namespace headroom::estimate {
namespace {

std::string refusal_of(const std::function<void()>& work) {
  try {
    work();
    return "";
  } catch (const Error& error) {
    return error.sentence();
  }
}

// Values that a key may not have, or that change the network.
std::vector<Json> unusual(const Json& usual) {
  if (usual.is_boolean()) return {!usual.get<bool>()};
  if (usual.is_string()) return {"nonsense"};
  if (usual.is_array()) return {Json::array(), Json::array({0}), Json::array({"nonsense"})};
  return {0, 3, 7, -1, 0.3, "nonsense", nullptr, {{"type", "nonsense"}}};
}

// Keys that say how a model was made or is trained further, not what it is.
bool is_of_network(const std::string& key) {
  for (const char* other : {"initializer", "init_std", "torch_dtype", "output_", "_token_id"})
    if (key.find(other) != std::string::npos && key != "pad_token_id") return false;
  return true;
}

// Every key of a model type, with transformers' default.
Json keys_of(const std::string& type) {
  const Json types =
      Json::parse(std::ifstream(HEADROOM_SOURCE_DIR "/headroom/model/data/model_types.json"));
  return types.at("types").at(type).at("defaults");
}

class Refusals : public testing::TestWithParam<std::string> {};

TEST_P(Refusals, OfTheForecastAreThoseOfTheDryRun) {
  const model::ModelConfig usual = small(GetParam()).config;
  const Json keys = keys_of(usual.type());
  int refused = 0;
  for (const auto& entry : keys.items()) {
    const std::string& key = entry.key();  // a name that clang lets a lambda capture
    const Json& value = entry.value();
    if (!is_of_network(key)) continue;
    for (const Json& other : unusual(value)) {
      for (const model::Task task : model::tasks_of(usual)) {
        std::optional<model::NamedModel> model;
        if (!refusal_of([&] { model = small(GetParam(), {{key, other}}); }).empty()) continue;
        model::Settings settings;
        settings.task = task;
        settings.batch = 2;
        settings.seq = kSmallLength;
        settings.image = kSmallImage;
        const std::string by_forecast =
            refusal_of([&] { (void)forecast::forecast_of(model->config, settings); });
        const std::string by_run = refusal_of([&] {
          (void)dryrun::dry_run("unlimited",
                                [&](c10::Device device) {
                                  return training_step(model->config, settings, device).subject;
                                },
                                {.keep_trace = false});
        });
        EXPECT_EQ(by_forecast, by_run) << key << " = " << other << ", " << to_string(task);
        refused += by_run.empty() ? 0 : 1;
      }
    }
  }
  EXPECT_GT(refused, 10);
}

INSTANTIATE_TEST_SUITE_P(Types, Refusals, testing::ValuesIn(one_of_each_type()));

}  // namespace
}  // namespace headroom::estimate

// What an estimate says with each technique, held against the same steps with numbers: the same
// bytes are requested at the peak.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/dryrun/dry_run.h"
#include "headroom/sim/simulate.h"
#include "tests/estimate/filled_step.h"
#include "tests/estimate/small_models.h"

namespace headroom::estimate {
namespace {

using model::Settings;

const Json kTechniques = Json::parse(R"([
  {"checkpointing": "full"},
  {"checkpointing": "every:2"},
  {"checkpointing": "full", "checkpointing_kind": "reentrant"},
  {"lora_rank": 4},
  {"lora_rank": 4, "lora_targets": ["all-linear"], "checkpointing": "full"},
  {"freeze_backbone": true},
  {"loss": "chunked:10"},
  {"loss": "fused"},
  {"loss": "fused", "autocast": "bf16", "checkpointing": "full"},
  {"dtype": "bfloat16"},
  {"dtype": "bfloat16", "rounding": "stochastic"},
  {"dtype": "bfloat16", "optimizer": "sgd-momentum", "rounding": "stochastic"},
  {"optimizer": "adamw8bit"},
  {"optimizer": "adamw4bit", "dtype": "bfloat16", "clip": 1.0},
  {"quantize": "4bit", "lora_rank": 4, "dtype": "bfloat16"},
  {"quantize": "4bit", "lora_rank": 4, "lora_targets": ["all-linear"], "checkpointing": "full"},
  {"quantize": "8bit", "lora_rank": 4, "autocast": "bf16"},
  {"quantize": "8bit", "freeze_backbone": true, "dtype": "bfloat16"},
  {"autocast": "bf16"},
  {"autocast": "fp16", "clip": 1.0, "accumulation": 2},
  {"offload": ["activations"]},
  {"offload": ["activations"], "checkpointing": "full", "lora_rank": 4},
  {"optimizer": "adamw", "optimizer_impl": "foreach"},
  {"optimizer": "sgd-momentum", "optimizer_impl": "loop"},
  {"optimizer": "adamw8bit"},
  {"optimizer": "adamw4bit", "dtype": "bfloat16", "rounding": "stochastic"},
  {"optimizer": "sgd-momentum", "dtype": "bfloat16", "rounding": "stochastic"},
  {"dtype": "bfloat16", "lora_rank": 4},
  {"dtype": "bfloat16", "lora_rank": 4, "lora_dtype": "weights"},
  {"optimizer": "adafactor"},
  {"optimizer": "adafactor-hf"}])");

std::int64_t predicted(const model::ModelConfig& config, const Settings& settings) {
  const auto make = [&](c10::Device device) {
    return training_step(config, settings, device).subject;
  };
  return dryrun::dry_run("8GiB", make, {.keep_trace = false}).peak.requested.count;
}

std::int64_t with_numbers(const model::ModelConfig& config, const Settings& settings) {
  const sim::Simulation box = sim::simulate("8GiB", {.mode = sim::Mode::compute});
  const TrainingStep step = filled_step(config, settings, box.device(0));
  box.card(0).reset_peaks();
  for (int i = 0; i < 2; ++i) step.subject.step();
  return box.card(0).statistics().requested_bytes.all.peak;
}

class Techniques : public testing::TestWithParam<std::string> {};

TEST_P(Techniques, TakeWhatWasEstimated) {
  const model::NamedModel model = small(GetParam());
  int tried = 0;
  for (const Json& technique : kTechniques) {
    Settings settings = model::settings_from_json(technique);
    settings.batch = settings.offload.any() ? 520 : 3;  // small tensors stay on the card
    settings.seq = kSmallLength;
    settings.image = kSmallImage;
    std::int64_t expected = 0;
    try {
      expected = predicted(model.config, settings);
    } catch (const UsageError&) {
      continue;  // the model has no use for it
    }
    if (settings.offload.any() && settings.checkpoint_every == 0) {
      Settings without = settings;
      without.offload = {};
      EXPECT_NE(expected, predicted(model.config, without)) << technique;
    }
    EXPECT_EQ(with_numbers(model.config, settings), expected) << technique;
    ++tried;
  }
  EXPECT_GE(tried, 8);
}

INSTANTIATE_TEST_SUITE_P(OfEachType, Techniques, testing::ValuesIn(one_of_each_type()),
                         [](const auto& of) {
                           std::string name = of.param;
                           for (char& c : name)
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           return name;
                         });

}  // namespace
}  // namespace headroom::estimate

#include "headroom/forecast/closed_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/model/model_catalogue.h"

namespace headroom::forecast {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

model::ModelConfig model(std::string_view name) {
  return model::model_named(name).config;
}

// A Llama that can be counted by hand: 1 layer, width 64, 4 heads of 16, inner 128, vocabulary 256.
model::ModelConfig tiny() {
  return {Json{{"model_type", "llama"},
               {"architectures", {"LlamaForCausalLM"}},
               {"vocab_size", 256},
               {"hidden_size", 64},
               {"intermediate_size", 128},
               {"num_hidden_layers", 1},
               {"num_attention_heads", 4},
               {"max_position_embeddings", 128}},
          "tiny"};
}

Bytes peak(const model::ModelConfig& config, const model::Settings& settings) {
  return forecast_of(config, settings).at_peak.total();
}

TEST(CountParameters, IsTransformersCountForEveryModelOfTheCatalogue) {
  for (const model::CatalogueModel& known : model::catalogue_models())
    EXPECT_EQ(count_parameters(model(known.name)), known.parameters) << known.name;
}

TEST(ForecastOf, MatchesAHandCountOfATinyModel) {
  model::Settings settings;
  settings.seq = 8;
  settings.optimizer = model::Optimizer::sgd;
  const Forecast forecast = forecast_of(tiny(), settings);
  // Embedding and head, q, k, v, o, three of the MLP, three norms.
  EXPECT_EQ(forecast.parameters, 2 * 256 * 64 + 4 * 64 * 64 + 3 * 64 * 128 + 3 * 64);
  EXPECT_EQ(forecast.trainable_parameters, forecast.parameters);
  EXPECT_EQ(forecast.at_peak.parameters.count, 4 * forecast.parameters);
  EXPECT_EQ(forecast.at_peak.optimizer.count, 0);
  EXPECT_EQ(forecast.at_peak.inputs.count, 3 * 8 * 8) << "tokens, mask and labels, 8 bytes each";
}

TEST(ForecastOf, SaysWhichTargetsOfLoraNoLayerHas) {
  model::Settings settings;
  settings.lora_rank = 4;
  EXPECT_THAT(forecast_of(tiny(), settings).assumed, Not(Contains(HasSubstr("no adapters"))));
  settings.lora_targets = {"q", "gat_proj"};
  const Forecast forecast = forecast_of(tiny(), settings);
  EXPECT_THAT(forecast.assumed, Contains(HasSubstr("no adapters for `gat_proj`")));
  EXPECT_THAT(forecast.assumed, Not(Contains(HasSubstr("`q`"))));
  EXPECT_EQ(forecast.trainable_parameters, 4 * (64 + 64)) << "those of the queries";
}

TEST(ForecastOf, AddsUpToItsParts) {
  for (const char* name : {"gpt2", "t5-small", "resnet18", "qwen3-0.6b"}) {
    const trace::Parts parts = forecast_of(model(name), {}).at_peak;
    EXPECT_EQ(parts.total(), parts.parameters + parts.buffers + parts.inputs + parts.gradients +
                                 parts.optimizer + parts.activations + parts.temporaries +
                                 parts.workspace + parts.rounding);
    EXPECT_GE(parts.rounding.count, 0) << name;
  }
}

// Weights 4, gradients 4, Adam's moments 8 bytes; at the step all are there and activations are
// not.
TEST(ForecastOf, TakesSixteenBytesAParameterAtAnAdamStepInFloat32) {
  model::Settings settings;
  settings.seq = 8;
  settings.form = model::OptimizerForm::foreach;
  const Forecast forecast = forecast_of(model("gpt2-medium"), settings);
  EXPECT_EQ(forecast.phase, trace::Phase::optimizer);
  const auto n = forecast.parameters;
  EXPECT_EQ(forecast.at_peak.parameters.count, 4 * n);
  EXPECT_EQ(forecast.at_peak.gradients.count, 4 * n);
  EXPECT_EQ(forecast.at_peak.optimizer.count, 8 * n);
  EXPECT_EQ(forecast.at_peak.temporaries.count, 4 * n) << "foreach: the parameters once more";
}

TEST(ForecastOf, NotesEverySizeThatItAssumes) {
  const Forecast forecast = forecast_of(model("t5-small"), {});
  EXPECT_THAT(forecast.assumed, Not(Contains(HasSubstr("--task"))));
  EXPECT_THAT(forecast.assumed, Contains("no --seq given, 512 assumed"));
  EXPECT_THAT(forecast.assumed, Contains("no --target-seq given, 512 assumed as --seq"));
  EXPECT_THAT(forecast_of(model("vit-base"), {}).assumed,
              Contains("no --image given, 224 assumed from the configuration"));
  model::Settings settings;
  settings.seq = 64;
  for (const std::string& line : forecast_of(model("gpt2"), settings).assumed)
    EXPECT_THAT(line, Not(HasSubstr("--seq"))) << "it was said";
}

TEST(ForecastOf, RefusesWhatAModelCannotDo) {
  model::Settings settings;
  settings.seq = 1025;
  EXPECT_THROW((void)forecast_of(model("gpt2"), settings), UsageError);
  settings = {};
  settings.batch = 0;
  EXPECT_THROW((void)forecast_of(model("gpt2"), settings), UsageError);
  settings = {};
  settings.task = model::Task::image_classification;
  EXPECT_THROW((void)forecast_of(model("gpt2"), settings), UsageError);
}

// Blocks are counted over the stages of ResNet-18, which have two each.
TEST(ForecastOf, CheckpointsTheBlocksOfAllStages) {
  model::Settings settings;
  settings.batch = 64;
  const auto at = [&](std::int64_t every) {
    settings.checkpoint_every = every;
    return forecast_of(model("resnet18"), settings).at_peak.activations;
  };
  const Bytes none = at(0), full = at(1), half = at(2), third = at(3), first = at(8);
  EXPECT_LT(full, half);
  EXPECT_LT(half, third);
  EXPECT_LT(third, first);
  EXPECT_LT(first, none);
}

// Each was priced as if it had not been said.
TEST(ForecastOf, RefusesSettingsThatTheTaskLacksOrThatContradict) {
  const auto refused = [](const char* name, auto change) {
    model::Settings settings;
    change(settings);
    EXPECT_THROW((void)forecast_of(model(name), settings), UsageError) << name;
  };
  refused("vit-base", [](model::Settings& s) { s.mode = model::Mode::generate; });
  refused("bert-base", [](model::Settings& s) { s.mode = model::Mode::generate; });
  refused("resnet18", [](model::Settings& s) { s.loss = model::LossForm::fused; });
  const auto classifies_in_chunks = [](model::Settings& s) {
    s.task = model::Task::sequence_classification;
    s.loss = model::LossForm::chunked, s.loss_chunk = 64;
  };
  refused("bert-base", classifies_in_chunks);
  const auto clips_too_late = [](model::Settings& s) {
    s.optimizer_in_backward = true, s.clip = 1;
  };
  refused("gpt2", clips_too_late);
  refused("gpt2", [](model::Settings& s) { s.optimizer_in_backward = true, s.accumulation = 2; });
}

TEST(ForecastOf, GrowsWithBatchAndSequence) {
  for (const char* name : {"gpt2", "llama-3.2-1b", "bert-base", "mixtral-8x7b"}) {
    Bytes before;
    for (const std::int64_t batch : {1, 2, 4, 32}) {
      model::Settings settings;
      settings.batch = batch;
      settings.seq = 256;
      const Bytes now = peak(model(name), settings);
      EXPECT_GT(now, before) << name << " " << batch;
      before = now;
    }
    before = {};
    for (const std::int64_t seq : {64, 128, 512}) {
      model::Settings settings;
      settings.batch = 8;
      settings.seq = seq;
      const Bytes now = peak(model(name), settings);
      EXPECT_GT(now, before) << name << " " << seq;
      before = now;
    }
  }
}

TEST(ForecastOf, SavesWhatEachTechniqueIsKnownToSave) {
  const model::ModelConfig llama = model("llama-3.1-8b");
  model::Settings plain;
  plain.batch = 4;
  plain.seq = 2048;
  plain.dtype = model::Dtype::bfloat16;
  const Bytes usual = peak(llama, plain);
  const auto saves = [&](const char* what, auto change) {
    model::Settings changed = plain;
    change(changed);
    EXPECT_LT(peak(llama, changed), usual) << what;
  };
  saves("checkpointing", [](model::Settings& s) { s.checkpoint_every = 1; });
  saves("every second layer", [](model::Settings& s) { s.checkpoint_every = 2; });
  saves("LoRA", [](model::Settings& s) { s.lora_rank = 8; });
  saves("4 bit and LoRA",
        [](model::Settings& s) { s.lora_rank = 8, s.quantize = model::Quantize::int4; });
  saves("8-bit Adam", [](model::Settings& s) { s.optimizer = model::Optimizer::adamw8bit; });
  saves("Adafactor", [](model::Settings& s) { s.optimizer = model::Optimizer::adafactor; });
  saves("a loss in chunks",
        [](model::Settings& s) { s.loss = model::LossForm::chunked, s.loss_chunk = 1024; });
  saves("a fused loss", [](model::Settings& s) { s.loss = model::LossForm::fused; });
  saves("states on the host", [](model::Settings& s) { s.offload.optimizer = true; });
  saves("parameters on the host", [](model::Settings& s) { s.offload.parameters = true; });
  saves("activations on the host", [](model::Settings& s) { s.offload.activations = true; });
  saves("ZeRO 1", [](model::Settings& s) { s.world = 8, s.zero = 1; });
  saves("ZeRO 3", [](model::Settings& s) { s.world = 8, s.zero = 3; });
  saves("a frozen backbone", [](model::Settings& s) { s.freeze_backbone = true; });
}

// torch.nn.parallel.DistributedDataParallel keeps its buckets beside the gradients unless
// gradient_as_bucket_view is asked for.
TEST(ForecastOf, CountsTheBucketsOfDataParallelTraining) {
  model::Settings settings;
  const Forecast alone = forecast_of(model("gpt2"), settings);
  settings.world = 4;
  const Forecast together = forecast_of(model("gpt2"), settings);
  EXPECT_EQ((together.at_peak.total() - alone.at_peak.total()).count / 1024,
            4 * alone.parameters / 1024);
  EXPECT_THAT(together.assumed, Contains(HasSubstr("buckets")));
}

TEST(ForecastOf, GivesEachStageOfZeroLessThanTheOneBefore) {
  model::Settings settings;
  settings.dtype = model::Dtype::bfloat16;
  settings.checkpoint_every = 1;
  settings.world = 8;
  Bytes before = peak(model("llama-3.1-8b"), settings);
  for (const int stage : {1, 2, 3}) {
    settings.zero = stage;
    const Bytes now = peak(model("llama-3.1-8b"), settings);
    EXPECT_LT(now, before) << stage;
    before = now;
  }
}

// DeepSpeed's own count of what stays on a card with stage 3 on N cards (docs/code-docs/source/
// memory.rst): 18 bytes a parameter over N in mixed precision; here 16, in float32.
TEST(ForecastOf, KeepsAShareOfAllStatesWithZero3) {
  model::Settings settings;
  settings.seq = 8;
  settings.world = 8;
  settings.zero = 3;
  const Forecast forecast = forecast_of(model("llama-2-7b"), settings);
  const double share = 16.0 * static_cast<double>(forecast.parameters) / 8;
  EXPECT_GT(static_cast<double>(forecast.resident.count), share);
  EXPECT_LT(static_cast<double>(forecast.resident.count), 1.2 * share) << "and two layers' weights";
}

TEST(ForecastOf, SaysWhatLiesOnTheHost) {
  model::Settings settings;
  settings.offload.optimizer = true;
  const Forecast forecast = forecast_of(model("gpt2"), settings);
  EXPECT_GE(forecast.on_host.count, 8 * forecast.parameters);
  EXPECT_EQ(forecast.at_peak.optimizer.count, 0);
  EXPECT_EQ(forecast.on_disk.count, 0);
  settings.offload.to = model::OffloadTo::disk;
  EXPECT_EQ(forecast_of(model("gpt2"), settings).on_disk, forecast.on_host);
}

// Rank 8 on q and v of 32 layers: 32 x 2 x 8 x (4096 + 4096), the figure of Hugging Face's PEFT for
// Llama-2-7B.
TEST(ForecastOf, TrainsAdaptersAlone) {
  model::Settings settings;
  settings.lora_rank = 8;
  EXPECT_EQ(forecast_of(model("llama-2-7b"), settings).trainable_parameters, 4'194'304);
  settings.lora_targets = {"q", "k", "v", "o"};
  EXPECT_EQ(forecast_of(model("llama-2-7b"), settings).trainable_parameters, 8'388'608);
}

// A layer that runs again was once taken for a part of the head, and had no adapters then.
TEST(ForecastOf, GivesAdaptersTheirGradientsInLayersThatRunAgain) {
  model::Settings settings;
  settings.seq = 8;
  settings.lora_rank = 512;
  settings.form = model::OptimizerForm::foreach;
  settings.checkpoint_every = 1;
  const Forecast forecast = forecast_of(model("t5-small"), settings);
  EXPECT_EQ(forecast.phase, trace::Phase::optimizer);
  EXPECT_EQ(forecast.at_peak.gradients.count, 4 * forecast.trainable_parameters);
}

// Keys and values, 32 layers, 4096 wide, 2 bytes: 512 KiB a token (Kwon et al. 2023 count 800 KB
// for the 13B of OPT, by the same rule).
// A checkpointed layer that trains nothing sent its gradient nowhere, and the program crashed.
TEST(ForecastOf, KeepsNothingOfFrozenLayersThatWouldRunAgain) {
  model::Settings settings;
  settings.task = model::Task::sequence_classification;
  settings.freeze_backbone = true;
  settings.transformers = model::Transformers::v4_57;
  for (const char* name : {"gpt2", "llama-3.2-1b", "bert-base", "distilbert-base"}) {
    settings.checkpoint_every = 0;
    const Forecast plain = forecast_of(model(name), settings);
    settings.checkpoint_every = 1;
    const Forecast checkpointed = forecast_of(model(name), settings);
    EXPECT_EQ(checkpointed.at_peak.total(), plain.at_peak.total()) << name;
  }
}

// transformers 5 asks for the gradient of the embedding's result where it enables checkpointing,
// and with it for the whole backward pass.
TEST(ForecastOf, RunsFrozenLayersBackwardsUnderCheckpointingOfTransformers5) {
  model::Settings settings;
  settings.task = model::Task::sequence_classification;
  settings.freeze_backbone = true;
  const Forecast plain = forecast_of(model("gpt2"), settings);
  settings.checkpoint_every = 1;
  EXPECT_GT(forecast_of(model("gpt2"), settings).at_peak.total(), plain.at_peak.total());
}

TEST(ForecastOf, AddsTheCacheOfTheWholeSequenceWhenItGenerates) {
  model::Settings settings;
  settings.mode = model::Mode::generate;
  settings.dtype = model::Dtype::bfloat16;
  settings.seq = 1;
  const Bytes short_one = peak(model("llama-2-7b"), settings);
  settings.seq = 2049;
  const Bytes long_one = peak(model("llama-2-7b"), settings);
  const double each = static_cast<double>((long_one - short_one).count) / 2048;
  EXPECT_GT(each, 512 * 1024);
  EXPECT_LT(each, 1.3 * 512 * 1024) << "and one layer's activations";
}

TEST(ForecastOf, ListsEveryParameterByModuleOnce) {
  for (const char* name : {"gpt2", "t5-small", "resnet50", "mixtral-8x7b", "bert-base"}) {
    const Forecast forecast = forecast_of(model(name), {});
    long long sum = 0;
    for (const ModuleMemory& module : forecast.by_module) sum += module.parameters;
    EXPECT_EQ(sum, forecast.parameters) << name;
  }
}

TEST(ForecastOf, CountsWorkspacesAndContextOfTheCardsChip) {
  const gpu::DeviceProfile* profile = gpu::find_profile("ada");
  ASSERT_NE(profile, nullptr);
  const Forecast with = forecast_of(model("gpt2"), {}, profile),
                 without = forecast_of(model("gpt2"), {});
  EXPECT_EQ(with.at_peak.workspace,
            (*profile->cublas_workspace + *profile->cublaslt_workspace) * 2);
  EXPECT_EQ(without.at_peak.workspace.count, 0);
  EXPECT_EQ(with.process, with.reserved + profile->context.value_or(Bytes{}));
}

}  // namespace
}  // namespace headroom::forecast

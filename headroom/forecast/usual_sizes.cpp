#include "headroom/forecast/usual_sizes.h"

#include <algorithm>
#include <array>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/model/model_catalogue.h"
#include "headroom/model/positions.h"

namespace headroom::forecast {
namespace {

constexpr std::array<std::pair<const char*, const char*>, 7> kSizes{{{"125M", "gpt2"},
                                                                     {"350M", "gpt2-medium"},
                                                                     {"774M", "gpt2-large"},
                                                                     {"1.3B", "opt-1.3b"},
                                                                     {"7B", "llama-2-7b"},
                                                                     {"13B", "llama-2-13b"},
                                                                     {"70B", "llama-2-70b"}}};

model::Settings in_bf16() {
  model::Settings settings;
  settings.dtype = model::Dtype::bfloat16;
  return settings;
}

// The common practice on one card: adapters of rank 8 on all attention projections, checkpointed.
model::Settings adapters() {
  model::Settings settings = in_bf16();
  settings.lora_rank = 8;
  settings.lora_targets = {"q", "k", "v", "o"};
  settings.checkpoint_every = 1;
  return settings;
}

std::vector<Recipe> all_recipes() {
  const model::Settings fp32;
  model::Settings sgd = fp32, mixed = fp32, lora_4bit = adapters();
  sgd.optimizer = model::Optimizer::sgd;
  mixed.autocast = model::Autocast::bf16;
  model::Settings checkpointed = mixed;
  checkpointed.checkpoint_every = 1;
  lora_4bit.quantize = model::Quantize::int4;
  return {{"fp32 AdamW", "fp32_adamw", fp32},
          {"fp32 SGD", "fp32_sgd", sgd},
          {"mixed precision", "mixed_precision", mixed},
          {"mixed + checkpointing", "mixed_precision_checkpointing", checkpointed},
          {"pure bf16", "bf16", in_bf16()},
          {"LoRA (bf16)", "lora", adapters()},
          {"LoRA (4-bit)", "lora_4bit", lora_4bit}};
}

const Recipe& recipe_of(std::string_view key) {
  for (const Recipe& recipe : recipes())
    if (recipe.key == key) return recipe;
  throw InternalError("recipe_of", "no recipe " + std::string(key));
}

model::Settings with_batch(const UsualSize& size, model::Settings settings,
                           const TableBatch& batch) {
  settings.batch = batch.batch;
  settings.seq = std::min(batch.seq, model::longest_sequence(size.config).value_or(batch.seq));
  return settings;
}

std::vector<Bytes> needs_of(const model::Settings& settings, const TableBatch& batch) {
  std::vector<Bytes> needs;
  for (const UsualSize& size : usual_sizes())
    needs.push_back(forecast_of(size.config, with_batch(size, settings, batch)).reserved);
  return needs;
}

model::Settings generating(model::Quantize quantize) {
  model::Settings settings = in_bf16();
  settings.mode = model::Mode::generate;
  settings.quantize = quantize;
  return settings;
}

std::string largest(const std::vector<Bytes>& needs, Bytes room) {
  std::string name = "-";
  for (std::size_t i = 0; i < needs.size(); ++i)
    if (needs[i] <= room) name = usual_sizes()[i].name;
  return name;
}

}  // namespace

const std::vector<UsualSize>& usual_sizes() {
  static const std::vector<UsualSize> all = [] {
    std::vector<UsualSize> sizes;
    for (const auto& [name, model] : kSizes) {
      model::ModelConfig config = model::model_named(model).config;
      const long long parameters = count_parameters(config);
      sizes.push_back({name, model, std::move(config), parameters});
    }
    return sizes;
  }();
  return all;
}

Bytes weight_bytes(long long parameters, WeightType type) {
  switch (type) {
    case WeightType::fp32:
      return Bytes{4 * parameters};
    case WeightType::fp16:
      return Bytes{2 * parameters};
    case WeightType::int8:
      return Bytes{parameters};
    case WeightType::int4:
      return Bytes{(parameters + 1) / 2};
  }
  throw InternalError("weight_bytes", "unknown type");
}

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all = all_recipes();
  return all;
}

Forecast forecast_of(const UsualSize& size, const Recipe& recipe, const TableBatch& batch) {
  return forecast_of(size.config, with_batch(size, recipe.settings, batch));
}

std::string to_string(const Uses& uses) {
  const auto or_nothing = [](const std::string& size) { return size == "-" ? "nothing" : size; };
  return "trains " + or_nothing(uses.full) + ", LoRA " + or_nothing(uses.lora) + ", 4-bit LoRA " +
         or_nothing(uses.lora_4bit) + "; runs " + or_nothing(uses.run_16bit) + " in 16 bit, " +
         or_nothing(uses.run_4bit) + " in 4 bit";
}

GoodFor::GoodFor(const TableBatch& batch)
    : full_(needs_of(recipe_of("mixed_precision_checkpointing").settings, batch)),
      lora_(needs_of(recipe_of("lora").settings, batch)),
      lora_4bit_(needs_of(recipe_of("lora_4bit").settings, batch)),
      run_16bit_(needs_of(generating(model::Quantize::none), batch)),
      run_4bit_(needs_of(generating(model::Quantize::int4), batch)) {}

Uses GoodFor::of(Bytes room) const {
  return {.full = largest(full_, room),
          .lora = largest(lora_, room),
          .lora_4bit = largest(lora_4bit_, room),
          .run_16bit = largest(run_16bit_, room),
          .run_4bit = largest(run_4bit_, room)};
}

}  // namespace headroom::forecast

#include "headroom/plan/policies.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/forecast/by_layer.h"
#include "headroom/forecast/closed_form.h"

namespace headroom::plan {
namespace {

using namespace headroom::literals;

// ---- The tables ----

constexpr long long kBillion = 1'000'000'000;

struct SizeClass {
  long long from;  // parameters, inclusive
  const char* name;
  std::int64_t batch;
};
constexpr std::array<SizeClass, 5> kBatchBySize{{{0, "below 1 B parameters", 16},
                                                 {1 * kBillion, "1 to 3 B parameters", 8},
                                                 {3 * kBillion, "3 to 10 B parameters", 4},
                                                 {10 * kBillion, "10 to 20 B parameters", 2},
                                                 {20 * kBillion, "20 B parameters or more", 1}}};

struct StrategyClass {
  long long from;
  const char* name;
  Strategy strategy;
  const char* words;
};
constexpr std::array<StrategyClass, 4> kStrategyBySize{
    {{0, "below 1 B parameters", Strategy::one_gpu, "one GPU"},
     {1 * kBillion, "1 to 10 B parameters", Strategy::data_parallel, "data parallel"},
     {10 * kBillion, "10 to 20 B parameters", Strategy::split_quantised, "split and in 8 bit"},
     {20 * kBillion, "20 B parameters or more", Strategy::split_4bit_offloaded,
      "split, in 4 bit, with the host's memory"}}};

// The simple formula: memory that the card keeps for itself, the memory per row as a multiple of
// the weights, and the size assumed for unknown weights.
constexpr Bytes kKept = 2_GiB;
constexpr double kTimesWeights = 2.5;
constexpr Bytes kUnknownWeights = 1_GiB + 512_MiB;

constexpr std::int64_t kLoraRank = 8;

// ---- Lookup ----

template <typename Class, std::size_t size>
const Class& class_of(const std::array<Class, size>& classes, long long parameters) {
  const Class* found = &classes.front();
  for (const Class& each : classes)
    if (parameters >= each.from) found = &each;
  return *found;
}

std::string in_words(long long parameters) {
  std::array<char, 32> text{};
  const bool billions = parameters >= kBillion;
  std::snprintf(text.data(), text.size(), billions ? "%.2f B" : "%.0f M",
                static_cast<double>(parameters) / (billions ? 1e9 : 1e6));
  return text.data();
}

std::string number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", value);
  return text.data();
}

double bytes_of(model::Dtype dtype) {
  return dtype == model::Dtype::float32 ? 4 : 2;
}
// Of a trained parameter and its gradient.
double trained_bytes(const model::Settings& settings) {
  const bool in_float = settings.lora_rank > 0 && settings.lora_dtype == model::LoraDtype::float32;
  return bytes_of(in_float ? model::Dtype::float32 : settings.dtype);
}
double weight_bytes(const model::Settings& settings) {
  if (settings.quantize == model::Quantize::int8) return 1;
  return settings.quantize == model::Quantize::int4 ? 0.5 : bytes_of(settings.dtype);
}

// Per trained parameter. Adafactor's row and column statistics are negligible.
double state_bytes(const model::Settings& settings) {
  switch (settings.optimizer) {
    case model::Optimizer::adamw:
    case model::Optimizer::adam:
      return 2 * trained_bytes(settings);
    case model::Optimizer::adamw8bit:
      return 2;
    case model::Optimizer::adamw4bit:
      return 1;
    case model::Optimizer::sgd_momentum:
      return trained_bytes(settings);
    case model::Optimizer::sgd:
    case model::Optimizer::adafactor:
    case model::Optimizer::adafactor_hf:
    case model::Optimizer::none:
      return 0;
  }
  throw InternalError("state_bytes", "unknown optimizer");
}

Bytes times(double each, long long count) {
  return Bytes{std::llround(each * static_cast<double>(count))};
}

}  // namespace

// ---- Memory for a plan ----

Bytes Room::of(Bytes card) const {
  return std::max(least, Bytes{static_cast<std::int64_t>(share * static_cast<double>(card.count))});
}

Bytes plannable(Bytes free, const Room& room) {
  return std::max(Bytes{0}, free - room.of(free));
}

Bytes resident_budget(Bytes total, double share) {
  return times(share, total.count);
}

std::optional<std::int64_t> cards_for(const std::vector<Bytes>& layers, Bytes budget) {
  if (budget.count <= 0)
    throw UsageError(expectation("cards_for", "a budget of some bytes", to_string(budget)));
  std::int64_t cards = 1;
  Bytes on_card;
  for (const Bytes layer : layers) {
    if (layer > budget) return {};
    const bool is_full = on_card + layer > budget;
    cards += is_full ? 1 : 0;
    on_card = is_full ? layer : on_card + layer;
  }
  return cards;
}

std::vector<Bytes> resident_by_layer(const forecast::Forecast& forecast) {
  return forecast::by_layer<Bytes>(forecast, [](const forecast::ModuleWork& module) {
    return Bytes{module.resident.count / std::max<std::int64_t>(1, module.layers)};
  });
}

// ---- The quick estimate ----

QuickEstimate quick_estimate(const model::ModelConfig& config, const model::Settings& settings) {
  const forecast::Forecast forecast = forecast::forecast_of(config, settings);
  const bool trains = settings.mode == model::Mode::train;
  const long long trained = forecast.trainable_parameters, frozen = forecast.parameters - trained;
  const double weight = trained_bytes(settings), state = trains ? state_bytes(settings) : 0;
  QuickEstimate quick;
  quick.parameters = forecast.parameters;
  quick.trainable_parameters = trained;
  quick.weights = times(weight, trained) + times(weight_bytes(settings), frozen);
  quick.gradients = times(trains ? weight : 0, trained);
  quick.optimizer = times(state, trained);
  quick.activations = forecast.at_peak.activations + forecast.at_peak.temporaries;
  quick.why =
      fmt::format("{} trained parameters x ({} weight + {} gradient + {} optimizer) bytes",
                  in_words(trained), number(weight), number(trains ? weight : 0), number(state));
  if (frozen > 0)
    quick.why += fmt::format(", {} frozen x {}", in_words(frozen), number(weight_bytes(settings)));
  return quick;
}

// ---- The batch ----

std::int64_t batch_of_size(long long parameters) {
  return class_of(kBatchBySize, parameters).batch;
}

BatchChoice batch_by_size(const model::ModelConfig& config, const model::Settings& settings,
                          Bytes room, const gpu::DeviceProfile* profile) {
  const SizeClass& size = class_of(kBatchBySize, forecast::count_parameters(config));
  const auto needs = [&](std::int64_t batch) {
    model::Settings changed = settings;
    changed.batch = batch;
    return forecast::forecast_of(config, changed, profile).reserved;
  };
  BatchChoice choice{.batch = size.batch,
                     .why = fmt::format("{}: {} a replica", size.name, size.batch)};
  if (needs(choice.batch) <= room) return choice;
  do --choice.batch;
  while (choice.batch > 0 && needs(choice.batch) > room);
  choice.why += choice.batch > 0 ? "; " + std::to_string(choice.batch) + " fits into "
                                 : "; not even 1 fits into ";
  choice.why += to_string(room);
  return choice;
}

BatchChoice batch_by_simple_formula(Bytes smallest_total, std::optional<Bytes> weights) {
  const Bytes of_model = weights.value_or(kUnknownWeights);
  if (of_model.count <= 0)
    throw UsageError(
        expectation("batch_by_simple_formula", "weights of some bytes", to_string(of_model)));
  const double rows = static_cast<double>((smallest_total - kKept).count) /
                      (static_cast<double>(of_model.count) * kTimesWeights);
  BatchChoice choice;
  choice.batch = rows < 1 ? 0 : static_cast<std::int64_t>(rows);
  choice.why = fmt::format("({} - {}) / ({}{} x {})", to_string(smallest_total), to_string(kKept),
                           to_string(of_model), weights ? "" : ", as the weights are not known,",
                           number(kTimesWeights));
  if (!choice.fits()) choice.why += " is below 1: does not fit";
  return choice;
}

// ---- The variant ----

VariantChoice variant_by_memory(const std::vector<Variant>& variants, Bytes smallest_total) {
  if (variants.empty())
    throw UsageError(expectation("variant_by_memory", "at least one variant", "none"));
  const Variant* best = nullptr;
  for (const Variant& variant : variants)
    if (variant.min_total <= smallest_total &&
        (best == nullptr || variant.min_total > best->min_total))
      best = &variant;
  const std::string card = "the smallest card has " + to_string(smallest_total);
  if (best == nullptr) return {"", card + ", less than any variant is for"};
  const std::string is_for = best->min_total.count > 0
                                 ? fmt::format(" is for {} or more", to_string(best->min_total))
                                 : " is chosen for every card";
  return {best->model, fmt::format("{}: {}{}", card, best->model, is_for)};
}

// ---- The strategy ----

std::string_view to_string(Strategy strategy) {
  for (const StrategyClass& each : kStrategyBySize)
    if (each.strategy == strategy) return each.words;
  throw InternalError("to_string", "unknown strategy");
}

StrategyChoice strategy_by_size(long long parameters, const model::Settings& settings, int gpus) {
  const StrategyClass& size = class_of(kStrategyBySize, parameters);
  StrategyChoice choice{.strategy = size.strategy, .settings = settings};
  choice.why = fmt::format("{}, {}: {}", in_words(parameters), size.name, size.words);
  model::Settings& changed = choice.settings;
  if (size.strategy == Strategy::one_gpu) return choice;
  if (size.strategy == Strategy::data_parallel) {
    choice.replicas = changed.world = std::max(gpus, 1);
    return choice;
  }
  choice.stages = std::max(gpus, 1);
  changed.quantize =
      size.strategy == Strategy::split_quantised ? model::Quantize::int8 : model::Quantize::int4;
  if (changed.lora_rank == 0 && changed.mode == model::Mode::train) changed.lora_rank = kLoraRank;
  changed.offload.parameters =
      changed.offload.parameters || size.strategy == Strategy::split_4bit_offloaded;
  return choice;
}

}  // namespace headroom::plan

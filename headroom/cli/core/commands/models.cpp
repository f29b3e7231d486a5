// `headroom models`: usual model sizes, the memory of their weights, and the cost of training them.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "headroom/base/text.h"
#include "headroom/cli/core/gpus_option.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/room.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/cli/core/whole_number.h"
#include "headroom/forecast/usual_sizes.h"
#include "headroom/machine/cards_to_fill.h"
#include "headroom/machine/look.h"
#include "headroom/model/model_catalogue.h"

namespace headroom::cli {
namespace {

using forecast::Forecast;
using forecast::Recipe;
using forecast::UsualSize;
using forecast::WeightType;

struct ModelsOptions {
  std::string gpus;
  long long batch = 1, seq = 512;
  bool names = false, json = false;
};

Bytes weights(const UsualSize& size, WeightType type) {
  return forecast::weight_bytes(size.parameters, type);
}

// `gradients` is the total of all gradients, some of which may be freed or not yet made at the
// peak; the other parts are those at the peak.
Json recipe_json(const Forecast& forecast, long long gradients) {
  const trace::Parts& parts = forecast.at_peak;
  return {{"weights_bytes", parts.parameters.count},
          {"gradients_bytes", gradients},
          {"optimizer_bytes", parts.optimizer.count},
          {"activations_bytes", (parts.activations + parts.temporaries).count},
          {"total_bytes", parts.total().count},
          {"phase", std::string(to_string(forecast.phase))}};
}

Json training_json(const UsualSize& size, const forecast::TableBatch& batch) {
  Json json{{"batch", batch.batch}, {"seq", batch.seq}, {"method", "formula"}};
  for (const Recipe& recipe : forecast::recipes()) {
    const Forecast forecast = forecast::forecast_of(size, recipe, batch);
    json["seq"] = *forecast.settings.seq;
    const long long each = recipe.settings.dtype == model::Dtype::float32 ? 4 : 2;
    json[std::string(recipe.key)] = recipe_json(forecast, each * forecast.trainable_parameters);
  }
  return json;
}

Json model_json(const UsualSize& size, const forecast::TableBatch& batch) {
  return {{"name", size.name},
          {"like", size.model},
          {"parameters", size.parameters},
          {"fp32_bytes", weights(size, WeightType::fp32).count},
          {"fp16_bytes", weights(size, WeightType::fp16).count},
          {"int8_bytes", weights(size, WeightType::int8).count},
          {"int4_bytes", weights(size, WeightType::int4).count},
          {"training", training_json(size, batch)}};
}

std::string weights_table(const Terminal& terminal) {
  std::vector<std::vector<std::string>> rows;
  for (const UsualSize& size : forecast::usual_sizes())
    rows.push_back(
        {size.name, size.model, fmt::format("{:.1f} M", static_cast<double>(size.parameters) / 1e6),
         to_string(weights(size, WeightType::fp32)), to_string(weights(size, WeightType::fp16)),
         to_string(weights(size, WeightType::int8)), to_string(weights(size, WeightType::int4))});
  return table("model|shape of|>parameters|>fp32|>fp16|>8-bit|>4-bit", rows, terminal);
}

// The memory for a plan on the emptiest card that --gpus names; std::nullopt for `auto`.
std::optional<Bytes> room_of(const ModelsOptions& options) {
  if (gpu::devices_from(options.gpus).kind == gpu::Devices::Kind::automatic) return {};
  const machine::Look look = machine::look_at_machine(options.gpus);
  std::optional<Bytes> most;
  for (const gpu::Card& card : look.machine.cards)
    if (const auto usable = usable_now(card))
      most = std::max(most.value_or(Bytes{0}), room_for_plan(*usable, machine::profile_of(card)));
  return most;
}

// "6.40", "13.6", "147": seven models fit into 80 cells.
std::string three_digits(double gib) {
  return fmt::format("{:.{}f}", gib, gib < 9.995 ? 2 : gib < 99.95 ? 1 : 0);
}

std::string training_table(const forecast::TableBatch& batch, std::optional<Bytes> room,
                           const Terminal& terminal) {
  std::string columns = "training";
  for (const UsualSize& size : forecast::usual_sizes()) columns += "|>" + std::string(size.name);
  std::vector<std::vector<std::string>> rows;
  for (const Recipe& recipe : forecast::recipes()) {
    std::vector<std::string> row{std::string(recipe.name)};
    for (const UsualSize& size : forecast::usual_sizes()) {
      const Bytes need = forecast::forecast_of(size, recipe, batch).at_peak.total();
      const char* fits = terminal.unicode ? " ✓" : " +";
      row.push_back(three_digits(need.gib()) + (!room ? "" : need <= *room ? fits : "  "));
    }
    rows.push_back(std::move(row));
  }
  return table(columns, rows, terminal);
}

// "125M, 350M: 1024 tokens, ..." for models with fewer positions than requested.
std::string shorter_rows(const forecast::TableBatch& batch) {
  std::map<std::int64_t, std::vector<std::string>> models;
  for (const UsualSize& size : forecast::usual_sizes()) {
    const Forecast forecast = forecast::forecast_of(size, forecast::recipes().front(), batch);
    if (*forecast.settings.seq < batch.seq) models[*forecast.settings.seq].push_back(size.name);
  }
  std::string out;
  for (const auto& [tokens, names] : models)
    out += fmt::format("{}: {} tokens, the maximum of these models\n", join(names, ", "), tokens);
  return out;
}

// Every model of the catalogue, by name.
ExitCode run_names(const ModelsOptions& options) {
  Json list = Json::array();
  std::vector<std::vector<std::string>> rows;
  for (const model::CatalogueModel& model : model::catalogue_models()) {
    list.push_back(
        {{"name", model.name}, {"parameters", model.parameters}, {"aliases", model.aliases}});
    rows.push_back({model.name,
                    fmt::format("{:.1f} M", static_cast<double>(model.parameters) / 1e6),
                    join(model.aliases, ", ")});
  }
  print(options.json ? to_line({{"schema", 1}, {"names", list}}) + "\n"
                     : table("name|>parameters|also", rows, standard_output()));
  return kOk;
}

ExitCode run_models(const ModelsOptions& options) {
  if (options.names) return run_names(options);
  const forecast::TableBatch batch{.batch = options.batch, .seq = options.seq};
  if (options.json) {
    Json document{{"schema", 1}, {"models", Json::array()}};
    for (const UsualSize& size : forecast::usual_sizes())
      document["models"].push_back(model_json(size, batch));
    print(to_line(document) + "\n");
    return kOk;
  }
  const Terminal terminal = standard_output();
  const auto room = room_of(options);
  std::string out = "Weights\n" + weights_table(terminal);
  out +=
      "\n" + in_lines(fmt::format("Training on one GPU in GiB, batch {} of {} tokens, by formula",
                                  batch.batch, batch.seq),
                      "", "  ", terminal);
  out += training_table(batch, room, terminal) + shorter_rows(batch);
  if (room)
    out +=
        "\n" + in_lines(fmt::format("{} fits into {} (usable, less a context and a margin of 5 %, "
                                    "at least 512 MiB)",
                                    terminal.unicode ? "✓" : "+", to_string(*room)),
                        "", "  ", terminal);
  print(out);
  return kOk;
}

}  // namespace

void add_models(Registry& registry) {
  auto [command, options] = registry.add(
      &run_models, "models", "List the usual model sizes: weights, and the memory of training",
      "  headroom models\n"
      "  headroom models --batch 4 --seq 2048 --gpus \"RTX 4090\"\n"
      "  headroom models --names\n"
      "  headroom models --json");
  add_gpus_option(command, options->gpus);
  command->add_option("--batch", options->batch, "Sequences in a step")
      ->capture_default_str()
      ->check(whole_number(1, 1'000'000));
  command->add_option("--seq", options->seq, "Tokens in a sequence")
      ->capture_default_str()
      ->check(whole_number(1, 10'000'000));
  command->add_flag("--names", options->names,
                    "List all models that `headroom estimate` knows by name");
  command->add_flag("--json", options->json, "Print one JSON document");
}

}  // namespace headroom::cli

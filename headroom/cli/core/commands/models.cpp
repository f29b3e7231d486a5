// `headroom models`: the usual model sizes, what their weights take and what training them costs.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "headroom/cli/core/look.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/room.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/gpu/catalogue.h"

namespace headroom::cli {
namespace {

using formula::ModelShape;
using formula::Precision;
using formula::Technique;

struct Options {
  std::string gpus;
  long long batch = 1, seq = 512;
  bool json = false;
};

Json training_json(const ModelShape& shape, formula::Batch batch) {
  Json json{{"batch", batch.batch}, {"seq", batch.seq}, {"method", "formula"}};
  for (const Technique technique : formula::all_techniques()) {
    const auto memory = training_memory(shape, technique, batch);
    json[key_of(technique)] = {{"weights_bytes", memory.weights.count},
                               {"gradients_bytes", memory.gradients.count},
                               {"optimizer_bytes", memory.optimizer.count},
                               {"activations_bytes", memory.activations.count},
                               {"logits_bytes", memory.logits.count},
                               {"total_bytes", memory.total().count}};
  }
  return json;
}

Json model_json(const ModelShape& shape, formula::Batch batch) {
  return {{"name", shape.name},
          {"like", shape.like},
          {"parameters", parameters(shape)},
          {"fp32_bytes", weight_bytes(shape, Precision::fp32).count},
          {"fp16_bytes", weight_bytes(shape, Precision::fp16).count},
          {"int8_bytes", weight_bytes(shape, Precision::int8).count},
          {"int4_bytes", weight_bytes(shape, Precision::int4).count},
          {"training", training_json(shape, batch)}};
}

std::string weights_table(const Terminal& terminal) {
  std::vector<std::vector<std::string>> rows;
  for (const ModelShape& shape : formula::standard_shapes())
    rows.push_back({shape.name, shape.like,
                    fmt::format("{:.1f} M", static_cast<double>(parameters(shape)) / 1e6),
                    to_string(weight_bytes(shape, Precision::fp32)),
                    to_string(weight_bytes(shape, Precision::fp16)),
                    to_string(weight_bytes(shape, Precision::int8)),
                    to_string(weight_bytes(shape, Precision::int4))});
  return table({{"model"},
                {"shape of"},
                {"parameters", true},
                {"fp32", true},
                {"fp16", true},
                {"8-bit", true},
                {"4-bit", true}},
               rows, terminal);
}

const gpu::DeviceProfile* profile_of(const gpu::Card& card) {
  if (const auto* known = gpu::find_card(card.name)) return gpu::find_profile(known->profile);
  if (!card.capability) return nullptr;
  return gpu::profile_of_capability((*card.capability)[0], (*card.capability)[1]);
}

// The room of the emptiest card that --gpus means, if it means any.
std::optional<Bytes> room_of(const Options& options) {
  if (gpu::devices_from(options.gpus).kind == gpu::Devices::Kind::automatic) return {};
  const Look look = look_at_machine(options.gpus);
  std::optional<Bytes> most;
  for (const gpu::Card& card : look.machine.cards)
    if (const auto usable = usable_now(card))
      most = std::max(most.value_or(Bytes{0}), room_for_plan(*usable, profile_of(card)));
  return most;
}

// "6.40", "13.6", "147": seven models fit into 80 cells.
std::string three_digits(double gib) {
  return fmt::format("{:.{}f}", gib, gib < 9.995 ? 2 : gib < 99.95 ? 1 : 0);
}

std::string training_table(formula::Batch batch, std::optional<Bytes> room,
                           const Terminal& terminal) {
  std::vector<Column> columns{{"training", false}};
  for (const ModelShape& shape : formula::standard_shapes()) columns.push_back({shape.name, true});
  std::vector<std::vector<std::string>> rows;
  for (const Technique technique : formula::all_techniques()) {
    std::vector<std::string> row{name_of(technique)};
    for (const ModelShape& shape : formula::standard_shapes()) {
      const Bytes need = training_memory(shape, technique, batch).total();
      const char* fits = terminal.unicode ? " ✓" : " +";
      row.push_back(three_digits(need.gib()) + (!room ? "" : need <= *room ? fits : "  "));
    }
    rows.push_back(std::move(row));
  }
  return table(columns, rows, terminal);
}

ExitCode run(const Options& options) {
  const formula::Batch batch{.batch = options.batch, .seq = options.seq};
  if (options.json) {
    Json document{{"schema", 1}, {"models", Json::array()}};
    for (const ModelShape& shape : formula::standard_shapes())
      document["models"].push_back(model_json(shape, batch));
    print(to_line(document) + "\n");
    return kOk;
  }
  const Terminal terminal = standard_output();
  const auto room = room_of(options);
  std::string out = "Weights\n" + weights_table(terminal);
  out += fmt::format("\nTraining on one GPU in GiB, batch {} of {} tokens, by formula\n",
                     batch.batch, batch.seq);
  out += training_table(batch, room, terminal);
  if (room)
    out += fmt::format(
        "\n{} fits into {} (usable, less a context and a margin of 5 %, at least 512 MiB)\n",
        terminal.unicode ? "✓" : "+", to_string(*room));
  print(out);
  return kOk;
}

}  // namespace

void add_models(Registry& registry) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      registry.add("models", "The usual model sizes: weights, and what training costs",
                   "  headroom models\n"
                   "  headroom models --batch 4 --seq 2048 --gpus \"RTX 4090\"\n"
                   "  headroom models --json");
  add_gpus_option(command, options->gpus);
  command->add_option("--batch", options->batch, "Sequences in a step")
      ->capture_default_str()
      ->check(CLI::Range(1LL, 1'000'000LL));
  command->add_option("--seq", options->seq, "Tokens in a sequence")
      ->capture_default_str()
      ->check(CLI::Range(1LL, 10'000'000LL));
  command->add_flag("--json", options->json, "One JSON document");
  registry.run(command, options, &run);
}

}  // namespace headroom::cli

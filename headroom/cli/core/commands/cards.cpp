// `headroom cards`: the catalogue, with computed (not quoted) uses of each card.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/room.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/forecast/usual_sizes.h"
#include "headroom/gpu/catalogue.h"

namespace headroom::cli {
namespace {

struct CardsOptions {
  std::vector<std::string> names;
  bool json = false;
};

// For an empty card: uses CUDA's total if known, which excludes the driver's own share.
forecast::Uses good_for(const gpu::CatalogueCard& card) {
  static const forecast::GoodFor table({.batch = 1, .seq = 512});
  const Bytes total = card.cuda_total.value_or(card.total);
  return table.of(room_for_plan(total, gpu::find_profile(card.profile)));
}

Json rate_json(const gpu::Rates& rates) {
  const auto or_null = [](const std::optional<double>& rate) {
    return rate ? Json(*rate * 1e12) : Json();
  };
  return {{"fp32", or_null(rates.fp32)},
          {"tf32", or_null(rates.tf32)},
          {"fp16", or_null(rates.fp16)},
          {"bf16", or_null(rates.bf16)}};
}

Json card_json(const gpu::CatalogueCard& card) {
  return {{"name", card.name},
          {"short", card.brief},
          {"class", card.kind},
          {"architecture", card.architecture},
          {"compute_capability", card.capability},
          {"total_bytes", card.total.count},
          {"cuda_total_bytes", or_null(card.cuda_total)},
          {"bandwidth", card.bandwidth_gb_s * 1e9},
          {"flops", rate_json(card.rates)},
          {"link",
           {{"pcie", card.pcie},
            {"pcie_bytes_per_s", card.pcie_gb_s * 1e9},
            {"nvlink_bytes_per_s", card.nvlink_gb_s * 1e9}}},
          {"power_w", or_null(card.power_w)},
          {"good_for", to_string(good_for(card))},
          {"source", card.sources}};
}

std::string rate(const std::optional<double>& tflops) {
  return tflops ? fmt::format("{:.0f}", *tflops) : "-";
}

std::vector<std::string> row_of(const gpu::CatalogueCard& card) {
  const forecast::Uses uses = good_for(card);
  return {card.brief,
          fmt::format("{:.1f}", card.total.gib()),
          fmt::format("{:.0f}", card.bandwidth_gb_s),
          rate(card.rates.bf16),
          rate(card.rates.fp32),
          card.nvlink_gb_s > 0 ? fmt::format("{:.0f}", card.nvlink_gb_s) : "-",
          uses.full,
          uses.lora,
          uses.lora_4bit,
          uses.run_16bit,
          uses.run_4bit};
}

ExitCode run_cards(const CardsOptions& options) {
  std::vector<const gpu::CatalogueCard*> cards;
  for (const std::string& name : options.names) cards.push_back(&gpu::card_named(name));
  if (cards.empty())
    for (const auto& card : gpu::catalogue()) cards.push_back(&card);
  if (options.json) {
    Json document{{"schema", 1}, {"cards", Json::array()}};
    for (const auto* card : cards) document["cards"].push_back(card_json(*card));
    print(to_line(document) + "\n");
    return kOk;
  }
  std::vector<std::vector<std::string>> rows;
  for (const auto* card : cards) rows.push_back(row_of(*card));
  const Terminal terminal = standard_output();
  const int width = terminal.has_width ? terminal.width - 1 : 90;
  print(table("card|>GiB|>GB/s|>bf16|>fp32|>NVLink|>train|>LoRA|>4-bit|>run 16|>run 4", rows,
              terminal) +
        wrapped("Memory as the driver reports it; dense TFLOP/s as training uses them; NVLink in "
                "GB/s.",
                "\n", "", width) +
        wrapped("Largest usual model by formula, batch 1 of 512 tokens: train with AdamW (mixed "
                "precision, checkpointing), with LoRA, with LoRA over 4-bit weights; run in 16 and "
                "in 4 bit.",
                "", "", width) +
        "Sources: headroom cards NAME --json\n");
  return kOk;
}

}  // namespace

void add_cards(Registry& registry) {
  auto [command, options] = registry.add(
      &run_cards, "cards", "List the catalogue of GPUs, and the models that each can train",
      "  headroom cards\n"
      "  headroom cards 4090 \"a100 40gb\"\n"
      "  headroom cards --json");
  command->add_option("name", options->names, "Names of the cards to list (default: all)");
  command->add_flag("--json", options->json,
                    "Print one JSON document, with the source of each card");
}

}  // namespace headroom::cli

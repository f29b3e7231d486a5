#include "headroom/cli/core/model_request.h"
#include "headroom/cli/core/gpus_option.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/forecast/closed_form.h"
#include "headroom/gpu/simulated_json.h"
#include "headroom/machine/cards_to_fill.h"
#include "headroom/machine/look.h"
#include "headroom/model/can_run.h"
#include "headroom/model/meaning.h"
#include "headroom/model/model_catalogue.h"
#include "headroom/model/positions.h"
#include "headroom/plan/decide.h"

namespace headroom::cli {
namespace {

// A dry run would hit LibTorch's own limits. For all other errors the dry run's message is better.
void check_size(const model::ModelConfig& config, const model::Settings& settings) {
  try {
    static_cast<void>(forecast::forecast_of(config, settings));
  } catch (const forecast::TooLargeError&) {
    throw;
  } catch (const Error&) {
  }
}

}  // namespace

void ModelRequest::add_to(CLI::App* command) {
  command
      ->add_option("model", model,
                   "A config.json or its folder, a model's name, a size (7B), or a Python function "
                   "(train.py:make_step)")
      ->required();
  add_gpus_option(command, gpus);
  settings.add_to(command);
  command->add_option("--rules", rules, "Kernels to model: cuda (default) or cpu")
      ->check(CLI::IsMember({"cuda", "cpu"}));
  command->add_option(
      "--allocator", allocator,
      "Allocator settings, as in PYTORCH_CUDA_ALLOC_CONF (default: those of the environment)");
  command->add_flag("--json", json, "Print one JSON document (sizes in bytes)");
}

ResolvedRequest::ResolvedRequest(const ModelRequest& request)
    : model(request.model),
      settings(request.settings.settings()),
      cards(machine::cards_to_fill(request.gpus)) {
  plan::Decided decided = plan::decide(model, settings, cards);
  if (decided.stages.value_or(1) > 1)
    throw UsageError(
        expectation("--policy strategy", "a model that a card holds whole",
                    fmt::format("{}, which the rule splits over {} cards", model, *decided.stages),
                    "headroom plan " + model + " --policy strategy"));
  model = std::move(decided.model);
  settings = std::move(decided.settings);
  decision = std::move(decided.why);
  const model::NamedModel named = model::model_named(model);
  check_meaning(named.config, settings, request.settings.given());
  check_image(named.config, settings);
  check_quantize(settings);
  check_rounding(settings);
  check_size(named.config, settings);
}

Json to_json(const ModelRequest& request, const ResolvedRequest& resolved) {
  Json json = {{"model", resolved.model},
               {"settings", model::to_json(resolved.settings)},
               {"cards", Json::array()},
               {"rules", request.rules},
               {"allocator", request.allocator ? Json(*request.allocator) : Json()},
               {"decision", resolved.decision},
               {"json", request.json}};
  for (const auto& card : resolved.cards) json["cards"].push_back(gpu::to_json(card));
  return json;
}

}  // namespace headroom::cli

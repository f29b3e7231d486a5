#include "headroom/cli/core/model_request.h"

#include <nlohmann/json.hpp>

#include "headroom/cli/core/cards_to_fill.h"
#include "headroom/cli/core/look.h"

namespace headroom::cli {

void ModelRequest::add_to(CLI::App* command) {
  command->add_option("model", model, "A config.json or its folder, a name, or a size: 7B")
      ->required();
  add_gpus_option(command, gpus);
  settings.add_to(command);
  command->add_option("--rules", rules, "Whose kernels' known sizes: cuda, cpu")
      ->check(CLI::IsMember({"cuda", "cpu"}));
  command->add_option("--allocator", allocator,
                      "As PYTORCH_CUDA_ALLOC_CONF (default: what the environment says)");
  command->add_flag("--json", json, "One JSON document (sizes in bytes)");
}

Json ModelRequest::document() const {
  Json request = {{"model", model},
                  {"settings", formula::to_json(settings.settings())},
                  {"cards", Json::array()},
                  {"rules", rules},
                  {"allocator", allocator ? Json(*allocator) : Json()},
                  {"json", json}};
  for (const auto& card : cards_to_fill(gpus)) request["cards"].push_back(to_json(card));
  return request;
}

}  // namespace headroom::cli

// Well-known models by name, with their configurations; nothing is downloaded.
//
//   const NamedModel model = model_named("llama-3.1-8b");   // also "meta-llama/Llama-3.1-8B"
//   model_named("7B").name;                                 // "llama-2-7b", and `note` says so
//   model_named("runs/my-model/config.json");               // or the folder
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "headroom/model/model_config.h"

namespace headroom::model {

struct CatalogueModel {
  std::string name;  // "llama-3.1-8b"
  std::vector<std::string> aliases;
  long long parameters = 0;  // as transformers counts them
};
// In the order of data/models.json. Read once; thread-safe.
[[nodiscard]] const std::vector<CatalogueModel>& catalogue_models();

struct NamedModel {
  std::string name;
  ModelConfig config;
  std::string note;  // for a size: "7B means the shape of llama-2-7b, 6.74 B parameters"
};

// `text`: a config.json or its folder, a name of the catalogue (case is ignored, "_" equals "-"),
// or a size such as "7B" or "350M", which selects the nearest language model of the catalogue and
// says so in `note`. Throws UsageError with the nearest name for an unknown one, InputError for a
// file that is not a configuration.
[[nodiscard]] NamedModel model_named(std::string_view text);

}  // namespace headroom::model

// LoRA adapters as peft's files (0.18): a folder with adapter_config.json and
// adapter_model.safetensors, which PeftModel.from_pretrained reads and save_pretrained writes.
//
//   const auto lora = nn::add_lora(model->module(), {.rank = 16, .alpha = 32});
//   ... train ...
//   save_adapter(lora, "adapter", {.base_model = "meta-llama/Llama-3.2-1B"});
//
//   // in a model without adapters:
//   const auto again = load_adapter(other->module(), "adapter");
//
// The module may be any that nn/lora.h supports, your own included; its layers need the names that
// they have in Python. To save a model with its adapters merged into its weights, call lora.merge()
// and then save (weights/safetensors.h), which leaves adapters' own parameters out.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "headroom/nn/lora.h"
#include "headroom/weights/tensor_files.h"

namespace headroom::weights {

struct AdapterInfo {
  std::string base_model = {};  // peft's base_model_name_or_path: a name on the hub, or a folder
  // peft's task_type, "CAUSAL_LM". It decides which class of peft reads the file. With "SEQ_CLS"
  // and "TOKEN_CLS" peft expects the head among `modules`.
  std::string task_type = {};
  // For AutoPeftModel, which without a task type needs to know transformers' class of the base.
  std::string base_class = {};
  // Modules that were trained as a whole, a head for example (peft's modules_to_save): their names,
  // and all their parameters under the model's names.
  std::vector<std::string> modules = {};
  NamedTensors parameters = {};
};

// Saves the adapters, merged or not, into a folder, which is created if needed. peft selects
// exactly the layers that have an adapter. Both old files stay until both new ones are on disk.
// Throws WriteError.
void save_adapter(const nn::Lora& lora, const std::filesystem::path& folder,
                  const AdapterInfo& info = {});

struct LoadAdapterOptions {
  // Adapters of half-precision weights are float32, as in nn::LoraOptions.
  bool float32 = true;
  // The module is some of the model's layers (models::Settings::part): adapters of other layers are
  // left where they are.
  bool is_part = false;
};

// Adds the adapters that the folder describes, with their weights. The model is frozen and the
// adapters train, as after nn::add_lora. Weights of base layers in the file, which peft saves for
// embeddings, go into the model, and so do whole modules (modules_to_save), which then train, too.
// target_modules may be a list, a regular expression (with the
// syntax of ECMAScript, which lacks lookbehind and named groups) or "all-linear": all linear layers
// in the file.
//
// Throws InputError naming the file and the key or tensor: for another peft_type, for keys that
// would change results and are not supported (use_dora, bias, layers_to_transform,
// an init_lora_weights that changes the model's weights, keys of a later peft, ...), for a missing,
// additional or broken tensor, and for one of another shape. Throws UsageError for layers that
// cannot have an adapter (nn/lora.h). Whenever it throws, the model is unchanged, unless memory ran
// out.
[[nodiscard]] nn::Lora load_adapter(torch::nn::Module& model, const std::filesystem::path& folder,
                                    const LoadAdapterOptions& options = {});

}  // namespace headroom::weights

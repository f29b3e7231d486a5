// Loads and saves weights of models in safetensors files, as on the Hugging Face hub.
//
// A trained model, from a folder of the hub (config.json and model.safetensors, or shards with
// model.safetensors.index.json):
//
//   const auto config = model::read_config("Llama-3.2-1B");
//   const auto model = libtorch::on(device, at::kBFloat16, [&] { return models::build(config); });
//   const Loaded loaded = load(*model, "Llama-3.2-1B");
//
// A trained base under a new head: `initialise` fills the tensors that the file lacks, and
// `loaded.missing` names it. Extra tensors, such as an old head, are named in `loaded.unexpected`.
//
//   const auto model = models::build(config, {.task = Task::sequence_classification});
//   const Loaded loaded = load(*model, "bert-base-uncased");
//   std::cout << to_string(loaded);
//   // 199 tensors, 417.6 MiB, from bert-base-uncased
//   // newly initialised, to be trained: classifier.weight, classifier.bias
//   // not used: cls.predictions.bias, ...
//
// And back, for transformers or for Headroom:
//
//   save(*model, "trained");                     // trained/model.safetensors
//   save(*model, "trained", {.shard = 2_GB});    // in files of 2 GB, and their index
//
// Tensors are copied directly to their destination, on any device and in its type, in pieces of
// some MiB. Neither loading nor saving makes a second copy of the model in memory.
//
// Adapters (nn/lora.h) are left out: weights/adapter_files.h saves them, or merge() them first.
//
// Names are the hub's, with the variants that transformers accepts: files of base models without
// `transformer.` or `bert.`, `gamma` and `beta` in old ones, tied weights under any of their names.
// A broken or truncated file is refused before anything is written to the model; the error names
// the file, the tensor and the byte.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/models/model.h"

namespace headroom::weights {

struct LoadOptions {
  // Skips tensors of another shape and initialises their parameters again, for a head with other
  // labels. If false, they are an error.
  bool skip_other_shapes = false;
};

struct OtherShape {
  std::string name;  // in the model
  std::vector<std::int64_t> in_file, in_model;
};

struct Loaded {
  std::string from;
  std::size_t tensors = 0;
  Bytes bytes;                          // as stored in the files
  std::vector<std::string> missing;     // in the model, but not loaded: newly initialised
  std::vector<std::string> unexpected;  // in the files, but not in the model
  std::vector<OtherShape> other_shapes;
};

// Loads a folder of the hub, a file, or an index. Throws InputError for a broken file, a file with
// nothing of this model, a tensor of another shape, or a type that weights cannot have (8-bit
// floats mean nothing without their scales).
Loaded load(models::Model& model, const std::filesystem::path& path,
            const LoadOptions& options = {});

// A text for people on the tensors that were loaded, and those that were not.
[[nodiscard]] std::string to_string(const Loaded& loaded);

struct SaveOptions {
  Bytes shard{5'000'000'000};  // most bytes in a file; a larger tensor has its own
};

// Saves into a folder, which is created if needed, or into one file if the path ends in
// .safetensors. Old files stay until all new ones are on disk; then the folder's former weights are
// removed. Throws WriteError.
void save(models::Model& model, const std::filesystem::path& path, const SaveOptions& options = {});

}  // namespace headroom::weights

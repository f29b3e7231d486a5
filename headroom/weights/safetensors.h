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
// A model that is too big for the device in its own type is quantised as it is read: whole blocks
// and rows are packed from pieces of the files, and no layer but a Conv1D is in memory as it was
// stored.
//
//   const auto model = libtorch::on(device, at::kBFloat16, [&] {
//     const nn::WithoutMemoryScope scope;
//     return models::build(config);
//   });
//   load(*model, "Llama-2-13b-hf", {.quantise = nn::QuantiseOptions{}});
//
// The bits are those of loading first and quantising then. Weights that the files lack are drawn, a
// layer at a time.
//
// Files that transformers has written with bitsandbytes, in NF4 or 8 bit, are read as they are: a
// model that was built without memory, or is quantised, gets the stored codes and scales. A model
// with weights in memory gets the numbers that they stand for, and Loaded says so. Quantised models
// are saved in the same form, which transformers opens again with the config of
// quantisation_config(). A Conv1D's weight, [in, out] in files of numbers, is [out, in] in
// quantised ones. Stacked experts are a matrix each in files; experts whose 8-bit scales have
// different offsets get float scales in memory, 0.05 bytes a number more.
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
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/models/model.h"
#include "headroom/nn/quantise.h"

namespace headroom::weights {

struct LoadOptions {
  // Skips tensors of another shape and initialises their parameters again, for a head with other
  // labels. If false, they are an error.
  bool skip_other_shapes = false;
  // Quantises the linear layers (nn/quantise.h), those without memory as they are read. Stored
  // codes in another format are packed anew.
  std::optional<nn::QuantiseOptions> quantise = {};
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
  // Weights that were quantised as they were read; that the files have quantised; and of these,
  // those that were dequantised because the model is not quantised.
  std::size_t packed = 0, quantised = 0, dequantised = 0;
};

// Loads a folder of the hub, a file, or an index. Throws InputError for a broken file, a file with
// nothing of this model, a tensor of another shape, a type that weights cannot have (8-bit floats
// mean nothing without their scales), or a quantised weight that is neither NF4 in blocks of 64 nor
// 8 bit with a scale a row.
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
// A model is one, or its parts (models::Settings::part) in their order: the files are of the whole.
void save(const std::vector<models::Model*>& parts, const std::filesystem::path& path,
          const SaveOptions& options = {});
inline void save(models::Model& model, const std::filesystem::path& path,
                 const SaveOptions& options = {}) {
  save(std::vector{&model}, path, options);
}

// What the config.json beside saved weights needs as `quantization_config`, as JSON: with it
// transformers opens them. std::nullopt for a model that is not quantised.
[[nodiscard]] std::optional<std::string> quantisation_config(
    const std::vector<models::Model*>& parts);
[[nodiscard]] inline std::optional<std::string> quantisation_config(models::Model& model) {
  return quantisation_config(std::vector{&model});
}

}  // namespace headroom::weights

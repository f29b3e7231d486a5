// Weights of models in safetensors files, as the Hugging Face hub has them.
//
// A trained model, from the folder that the hub gives (config.json and model.safetensors, or shards
// with model.safetensors.index.json):
//
//   const auto config = formula::read_config("Llama-3.2-1B");
//   const auto model = libtorch::on(device, at::kBFloat16, [&] { return models::build(config); });
//   const Loaded loaded = models::load(*model, "Llama-3.2-1B");
//
// A trained base under a new head: what the file lacks begins as `initialise` makes it, and
// `loaded.missing` names it. What it has too much, an older head, is in `loaded.unexpected`.
//
//   const auto model = models::build(config, {.task = Task::sequence_classification});
//   const Loaded loaded = models::load(*model, "bert-base-uncased");
//   std::cout << to_string(loaded);
//   // 199 tensors, 417.6 MiB, from bert-base-uncased
//   // newly initialised, to be trained: classifier.weight, classifier.bias
//   // not used: cls.predictions.bias, ...
//
// And back, for transformers or for us:
//
//   models::save(*model, "trained");                     // trained/model.safetensors
//   models::save(*model, "trained", {.shard = 2_GB});    // in files of 2 GB, and their index
//
// Tensors go straight to their places and types, on whatever device the model lies, in pieces of
// some MiB: neither way makes a second copy of the model in memory.
//
// Names are the hub's, with the liberties that transformers takes: files of base models without
// `transformer.` or `bert.`, `gamma` and `beta` of old ones, weights that are tied under any of
// their names. A file that is wrong or cut off is refused, with its name, the tensor and the byte,
// before anything is written to the model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/models/model.h"

namespace headroom::models {

struct LoadOptions {
  // Tensors of another shape are left where they are and their places newly initialised: a head
  // for other labels. Off: they are an error.
  bool skip_other_shapes = false;
};

struct OtherShape {
  std::string name;  // the model's
  std::vector<std::int64_t> in_file, in_model;
};

struct Loaded {
  std::string from;
  std::size_t tensors = 0;
  Bytes bytes;                          // as they are stored
  std::vector<std::string> missing;     // the model's that no file has: newly initialised
  std::vector<std::string> unexpected;  // the files' that the model has no place for
  std::vector<OtherShape> other_shapes;
};

// A folder of the hub, a file, or an index. Throws InputError for a file that is wrong, that has
// nothing of this model, a tensor of another shape, or of a type that cannot be a weight (8-bit
// floats mean nothing without their scales).
Loaded load(Model& model, const std::filesystem::path& path, const LoadOptions& options = {});

// For people: what was read, and what was not.
[[nodiscard]] std::string to_string(const Loaded& loaded);

struct SaveOptions {
  Bytes shard{5'000'000'000};  // at most so much in a file, but for tensors that are larger
};

// Into a folder, which is made, or to a file that ends in .safetensors: all in one. Old content
// stays until all of the new is on the disk; then files of the folder's former weights are removed.
// Throws WriteError.
void save(Model& model, const std::filesystem::path& path, const SaveOptions& options = {});

}  // namespace headroom::models

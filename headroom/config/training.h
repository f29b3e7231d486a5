// The meaning of a training configuration: its model, looked up once, and the settings of its step
// as `headroom estimate` has them.
//
//   const Training training(resolve(training_keys(), {.overrides = {"model=gpt-tiny"}}));
//   training.model.name;       // "gpt-tiny"
//   training.settings.batch;   // 32
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "headroom/config/resolved.h"
#include "headroom/model/model_catalogue.h"
#include "headroom/model/run_settings.h"

namespace headroom::config {

// The origin of a value that neither a person nor a default gave.
inline constexpr const char* kChosen = "chosen by headroom train";

// How cards share a training: `replicas` copies of the model, each in `stages`.
struct Sharing {
  int replicas = 1, stages = 1;
  std::vector<std::int64_t> split = {};  // layers of each stage; empty: as even as they can be
  std::set<int> checkpointed = {};       // stages
  // The card of each stage of each replica, by its place in --gpus; empty: in their order.
  std::vector<int> on = {};

  [[nodiscard]] int cards() const { return replicas * stages; }
};

struct Training {
  // Throws UsageError and InputError for a model that does not exist, and for keys that contradict
  // each other.
  explicit Training(Resolved resolved);

  Resolved config;
  bool on_images = false;   // the data are images, and the model classifies them
  model::NamedModel model;  // that `model` and `model.config` name
  model::Settings settings;
  Sharing sharing;

  // Rows of a part of a batch, as a run begins. A stage waits for the one before it at the
  // beginning of a step, and for the one after it at the end: with four parts for each stage, for
  // less than a fifth of the time.
  [[nodiscard]] std::int64_t micro_batch() const;
  // The model for data with this many classes, or with this many tokens for a gpt-tiny; 0: not
  // known.
  [[nodiscard]] model::ModelConfig model_for(std::int64_t outputs) const;
  // "gpt2"; of a model in a folder, the folder's name.
  [[nodiscard]] std::string short_name() const;
  // In words: "vit-base, adapters of rank 8, on flowers102".
  [[nodiscard]] std::string job() const;
};

// The adapter that `weights` names, if it names one.
[[nodiscard]] std::optional<std::string> adapter_of(const Resolved& config);
// The weights that the configuration names; std::nullopt: random ones. Throws InputError if they
// are missing. For an adapter in peft's form, those of the model below it.
[[nodiscard]] std::optional<std::string> weights_of(const Resolved& config);
// The name by which other programs know the model: a folder with its config.json, or its name on
// the hub.
[[nodiscard]] std::string base_name_of(const Resolved& config);

// If `weights` names an adapter, the model is the adapter's, unless the configuration names one.
// Throws InputError if the adapter does not name its model.
void take_model_of_adapter(Resolved& config);
// gpt-tiny has a dataset of its own. Throws UsageError for data that the model cannot learn from.
void choose_dataset(Resolved& config);
// Of `stages` and `split` one that is typed replaces the other of a file or of a run that goes on.
void choose_stages(Resolved& config);
// A dry run looks at no weight and no example: replaces those that are not given and not there, and
// returns a sentence for each.
[[nodiscard]] std::vector<std::string> stand_in_for_files(Resolved& config);

}  // namespace headroom::config

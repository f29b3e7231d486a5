// A technique: a way to train with less memory, as a value. Each file in techniques/ defines those
// of one subject, and everything that needs techniques reads these rows: the options of `headroom
// estimate`, the keys of `headroom train`, the advice of an estimate, the ladder of a training
// step.
//
//   for (const Change& change : technique.changes(situation)) say(change.option);
//
// A new technique is a new file there, which defines a function of the file's name that returns it.
// If it changes the model too, add recipe/techniques/NAME.cpp (recipe/techniques.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/gpu/catalogue.h"
#include "headroom/model/model_config.h"
#include "headroom/model/run_settings.h"

namespace headroom::plan {

// A training that a technique may change.
struct Situation {
  const model::ModelConfig& config;
  const model::Settings& settings;           // with task, seq, target_seq and image decided
  const gpu::CatalogueCard* card = nullptr;  // null if not known
  int gpus = 1;                              // that may train together

  [[nodiscard]] bool trains() const { return settings.mode == model::Mode::train; }
};

// The same training with a technique in use, or with more of it.
struct Change {
  std::string title;              // "checkpointing, every layer"
  std::string option;             // as on the command line: "--checkpointing full"
  model::Settings settings;       // with the change
  bool changes_training = false;  // another result: LoRA, fewer bits, another optimizer
  bool is_last_resort = false;    // another task: a shorter sequence
  // One of several sizes of the same change, as --seq 512 and --seq 256: only the first that fits
  // is shown, or the last if none fits.
  bool is_a_size = false;
};

// The situation with this change of its settings.
template <typename Apply>
[[nodiscard]] Change change(const Situation& now, std::string title, std::string option,
                            const Apply& apply) {
  Change change{std::move(title), std::move(option), now.settings};
  apply(change.settings);
  return change;
}
// The same for one that changes the result of the training.
template <typename Apply>
[[nodiscard]] Change other_training(const Situation& now, std::string title, std::string option,
                                    const Apply& apply) {
  Change other = change(now, std::move(title), std::move(option), apply);
  other.changes_training = true;
  return other;
}

// An option of `headroom estimate`: `key` is its name in the settings' JSON (model/run_settings.h),
// and the option has dashes for underscores. Kind::own is a flag that adds its key to
// Settings::techniques, so the technique needs no field of its own in the settings.
struct Option {
  enum class Kind { word, count, number, list, flag, own };
  const char* key;
  Kind kind;
  const char* help;
  // The values it takes, if the set is fixed; the help lists them.
  const std::vector<std::string>& (*words)() = nullptr;
};

// A key of `headroom train`. `choices`: the first is the default; "every:N" takes a number; an
// empty list means true or false.
struct Key {
  const char* name;
  std::vector<std::string> choices;
  const char* effect;
  // Puts a value that is not the default into the settings.
  std::function<void(std::string_view value, model::Settings& settings)> apply;
};

// A technique that a training step can switch on or off between two attempts (train/ladder.h)
// without changing the result. One that `lasts` does change it, and stays on: the ladder takes it
// after all others, and only where the objective offers it (train/objective.h).
struct Rung {
  std::string name;        // in plans and their files: "fused_loss"
  int place = 0;           // the ladder adds the lowest first
  std::string words;       // in a plan: "activations on the host"
  std::string key;         // as `headroom train` takes it: "loss=fused"
  bool uses_host = false;  // what leaves the card needs room on the host
  bool lasts = false;
  std::function<void(model::Settings&, bool on)> put;  // into settings, or out of them
};

struct Technique {
  std::vector<Option> options = {};
  std::vector<Key> keys = {};
  std::vector<Rung> rungs = {};
  // The changes that are possible and not in use. Without a function there are none.
  std::function<std::vector<Change>(const Situation&)> changes = {};
};

// The rank of adapters where none is given.
inline constexpr std::int64_t kUsualRank = 8;

// "every:2" has a 2, "full" nothing.
[[nodiscard]] std::optional<std::int64_t> number_after_colon(std::string_view value);

// All of techniques/, by the names of their files.
[[nodiscard]] const std::vector<Technique>& techniques();
// All rungs, by their places, and their names.
[[nodiscard]] const std::vector<Rung>& rungs();
[[nodiscard]] std::set<std::string> rung_names();
// Throws InternalError if there is none of this name.
[[nodiscard]] const Rung& rung_named(std::string_view name);

}  // namespace headroom::plan

// What `headroom plan` is asked: a model, what of its training is fixed, the cards, and the limits.
// It crosses from the command to headroom-engine as JSON.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/amount.h"
#include "headroom/base/json.h"
#include "headroom/config/training.h"
#include "headroom/gpu/simulated.h"

namespace headroom::cli {

// All weights are trained, or adapters; `any`: the lightest change of what is asked that fits.
enum class Tune { full, lora, any };
[[nodiscard]] Tune tune_named(const std::string& name);
[[nodiscard]] const char* to_string(Tune tune);

struct PlanQuestion {
  std::string model;                           // as the user names it
  std::vector<std::string> keys = {};          // of the training, "dtype=bfloat16": these are fixed
  std::int64_t rows = 32;                      // of a step: the effective batch
  std::vector<gpu::SimulatedCard> cards = {};  // `reserved` is not usable
  std::string gpus = {};                       // as --gpus names them
  ShareOrBytes budget = {.share = 0.7};        // for what stays
  std::optional<Bytes> host_memory = {};       // most that waits there; else what the machine has
  Tune tune = Tune::full;
  std::optional<std::int64_t> part = {};  // micro-batch
  std::optional<int> replicas = {}, stages = {};
  bool balance = false;
  // Only ways after this one of ways_of() with Tune::any.
  std::optional<int> lighter_than = {};
  // What a rule of thumb has fixed, why, and the same question without it.
  std::string policy = "exact", decision = {};
  bool part_may_shrink = false;  // until it fits
  std::shared_ptr<const PlanQuestion> without_rule = {};
  std::string rates = {};  // the card whose times they have; "" means their own
};

[[nodiscard]] Json to_json(const PlanQuestion& question);
[[nodiscard]] PlanQuestion plan_question_from(const Json& json);

// A way to train the model, in words, and the keys that mean it.
struct TuneWay {
  std::string words;
  std::vector<std::string> keys;
  int number = 0;  // among those of Tune::any, the heaviest first
};
// Those to try, one after another. Throws UsageError if there is none.
[[nodiscard]] std::vector<TuneWay> ways_of(const PlanQuestion& question);

// The training of a question in this way, on one card, with made-up data. Throws UsageError and
// InputError as config::Training does.
[[nodiscard]] config::Training training_of(const PlanQuestion& question, const TuneWay& way,
                                           const std::vector<std::string>& more = {});

}  // namespace headroom::cli

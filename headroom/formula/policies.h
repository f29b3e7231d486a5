// The rules of thumb that people use, as policies with names beside the exact one: each says what
// it decides, and why. All tables of such rules are in policies.cpp.
//
//   const BatchChoice choice = batch_by_size(config, settings, plannable(24_GiB));
//   choice.batch;   // 4; 0: it does not fit
//   choice.why;     // "3 to 10 B parameters: 4 a replica; 2 fits into 22.8 GiB"
//
// Bounds of sizes are inclusive below: a model of 1 B parameters belongs to "1 to 3 B".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/formula/model_config.h"
#include "headroom/formula/settings.h"
#include "headroom/gpu/profile.h"

namespace headroom::formula {

// ---- What a plan may use ----

// Of `free` bytes all but max(512 MiB, 5 %), because real memory is not used without gaps.
[[nodiscard]] Bytes plannable(Bytes free);
// Of a card: for what is there all the time, parameters, gradients and states; 70 % by default.
[[nodiscard]] Bytes resident_budget(Bytes total, double share = 0.7);
// How many cards of that budget a model's resident bytes need, split evenly; at least 1.
[[nodiscard]] std::int64_t cards_for(Bytes resident, Bytes budget);

// ---- The quick estimate: bytes a parameter ----

// Parameters x (weight + gradient + optimizer), for instance 4 + 4 + 8 in float32 with Adam, and
// the activations of the closed form. Frozen parameters count as weights alone.
struct QuickEstimate {
  long long parameters = 0, trainable_parameters = 0;
  Bytes weights, gradients, optimizer, activations;
  std::string why;  // "124 M parameters x (4 weight + 4 gradient + 8 optimizer) bytes"
  [[nodiscard]] Bytes total() const { return weights + gradients + optimizer + activations; }
};
[[nodiscard]] QuickEstimate quick_estimate(const ModelConfig& config, const Settings& settings);

// ---- The batch ----

struct BatchChoice {
  std::int64_t batch = 0;  // of a replica; 0: it does not fit
  std::string why;
  [[nodiscard]] bool fits() const { return batch > 0; }
};

// By size: below 1 B parameters 16, from there 8, from 3 B 4, from 10 B 2, from 20 B 1.
[[nodiscard]] std::int64_t batch_of_size(long long parameters);
// The same, made smaller until the forecast's reserved bytes fit into `room`.
[[nodiscard]] BatchChoice batch_by_size(const ModelConfig& config, const Settings& settings,
                                        Bytes room, const gpu::DeviceProfile* profile = nullptr);
// (total - 2 GiB) / (weights x 2.5), of the smallest card; weights that nobody knows are 1.5 GiB.
[[nodiscard]] BatchChoice batch_by_simple_formula(Bytes smallest_total,
                                                  std::optional<Bytes> weights = {});

// ---- The variant of a model ----

struct Variant {
  Bytes min_total;  // the smallest card has at least so much
  std::string model;
};
struct VariantChoice {
  std::string model;  // empty: no variant is for cards that small
  std::string why;
};
// The variant for the most memory among those that the smallest card has enough for.
[[nodiscard]] VariantChoice variant_by_memory(const std::vector<Variant>& variants,
                                              Bytes smallest_total);

// ---- The strategy ----

enum class Strategy { one_gpu, data_parallel, split_quantised, split_4bit_offloaded };
struct StrategyChoice {
  Strategy strategy = Strategy::one_gpu;
  Settings settings;  // as the strategy changes those that were given
  std::string why;
};
// By size: below 1 B parameters one GPU, from there data parallel, from 10 B split and quantised,
// from 20 B split, in 4 bit and with offloading to the host.
[[nodiscard]] StrategyChoice strategy_by_size(long long parameters, const Settings& settings,
                                              int gpus);
[[nodiscard]] std::string_view to_string(Strategy strategy);

}  // namespace headroom::formula

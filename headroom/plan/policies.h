// Rules of thumb for planning a run, as named policies beside the exact one. Each returns its
// decision and the reason. policies.cpp holds all their tables.
//
//   const BatchChoice choice = batch_by_size(config, settings, plannable(24_GiB));
//   choice.batch;   // 2; 0: it does not fit
//   choice.why;     // "3 to 10 B parameters: 4 a replica; 2 fits into 22.8 GiB"
//
// A size class includes its lower bound: a model of 1 B parameters belongs to "1 to 3 B".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/forecast/closed_form.h"
#include "headroom/gpu/profile.h"
#include "headroom/model/model_config.h"
#include "headroom/model/run_settings.h"

namespace headroom::plan {

// ---- Memory for a plan ----

// Memory that a plan is to leave free, because fragmentation makes the last bytes unusable: the
// larger of the two.
struct Room {
  Bytes least{std::int64_t{512} << 20};
  double share = 0.05;
  [[nodiscard]] Bytes of(Bytes card) const;
};
// `free` less the room.
[[nodiscard]] Bytes plannable(Bytes free, const Room& room = {});
// The share of a card for parameters, gradients and states, which stay all the time; default 70 %.
[[nodiscard]] Bytes resident_budget(Bytes total, double share = 0.7);
// The number of cards that hold what stays of a model: whole layers one after another, of these
// sizes, with no more than `budget` on a card. std::nullopt if one layer is too large.
[[nodiscard]] std::optional<std::int64_t> cards_for(const std::vector<Bytes>& layers, Bytes budget);
// What stays of each layer: parameters, gradients and states.
[[nodiscard]] std::vector<Bytes> resident_by_layer(const forecast::Forecast& forecast);

// ---- The quick estimate: bytes per parameter ----

// Parameters x (weight + gradient + optimizer), such as 4 + 4 + 8 for float32 with Adam, plus the
// closed form's activations. Frozen parameters count only as weights.
struct QuickEstimate {
  long long parameters = 0, trainable_parameters = 0;
  Bytes weights, gradients, optimizer, activations;
  std::string why;  // "124 M trained parameters x (4 weight + 4 gradient + 8 optimizer) bytes"
  [[nodiscard]] Bytes total() const { return weights + gradients + optimizer + activations; }
};
[[nodiscard]] QuickEstimate quick_estimate(const model::ModelConfig& config,
                                           const model::Settings& settings);

// ---- The batch ----

struct BatchChoice {
  std::int64_t batch = 0;  // per replica; 0: it does not fit
  std::string why;
  [[nodiscard]] bool fits() const { return batch > 0; }
};

// By size: 16 below 1 B parameters, 8 from 1 B, 4 from 3 B, 2 from 10 B, 1 from 20 B.
[[nodiscard]] std::int64_t batch_of_size(long long parameters);
// The same, reduced until the forecast's reserved bytes fit into `room`.
[[nodiscard]] BatchChoice batch_by_size(const model::ModelConfig& config,
                                        const model::Settings& settings, Bytes room,
                                        const gpu::DeviceProfile* profile = nullptr);
// (total - 2 GiB) / (weights x 2.5), for the smallest card; unknown weights count as 1.5 GiB.
[[nodiscard]] BatchChoice batch_by_simple_formula(Bytes smallest_total,
                                                  std::optional<Bytes> weights = {});

// ---- The variant of a model ----

struct Variant {
  Bytes min_total;  // the smallest card must have this much
  std::string model;
};
struct VariantChoice {
  std::string model;  // "" if no variant suits a card this small
  std::string why;
};
// The variant with the highest `min_total` that the smallest card reaches.
[[nodiscard]] VariantChoice variant_by_memory(const std::vector<Variant>& variants,
                                              Bytes smallest_total);

// ---- The strategy ----

enum class Strategy { one_gpu, data_parallel, split_quantised, split_4bit_offloaded };
struct StrategyChoice {
  Strategy strategy = Strategy::one_gpu;
  int replicas = 1, stages = 1;
  model::Settings settings;  // of a card: the given ones, as the strategy changes them
  std::string why;
};
// By size: one GPU below 1 B parameters, data parallel from 1 B, split and quantised from 10 B,
// split in 4 bit and offloaded to the host from 20 B.
[[nodiscard]] StrategyChoice strategy_by_size(long long parameters, const model::Settings& settings,
                                              int gpus);
[[nodiscard]] std::string_view to_string(Strategy strategy);

}  // namespace headroom::plan

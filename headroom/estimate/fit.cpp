#include "headroom/estimate/fit.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/json.h"
#include "headroom/base/text.h"
#include "headroom/estimate/training_step.h"
#include "headroom/model/can_run.h"
#include "headroom/model/positions.h"
#include "headroom/model/tasks.h"
#include "headroom/models/model.h"
#include "headroom/sim/child.h"

namespace headroom::estimate {
namespace {

using model::ModelConfig;
using model::Settings;

// The length of the first run, long enough to predict others: shorter ones take other kernels. CUDA
// sorts the indices of an embedding's gradient if there are more than 3072.
std::int64_t first_length(const Settings& settings) {
  constexpr std::int64_t kStep = 128, kSortedFrom = 3073;
  const std::int64_t length = (kSortedFrom + settings.batch - 1) / settings.batch;
  return (length + kStep - 1) / kStep * kStep;
}

models::Task task_of(const ModelConfig& config, const Settings& settings) {
  return settings.task.value_or(model::tasks_of(config).front());
}

// Fills in task and sizes. A target length that follows the searched length stays empty.
Settings settled(const ModelConfig& config, const Settings& said, Over over) {
  Settings settings = said;
  settings.task = task_of(config, said);
  settle_sizes(config, settings);
  if (over == Over::seq && !said.target_seq) settings.target_seq.reset();
  return settings;
}

void check(const ModelConfig& config, const Settings& settings, const FitOptions& options) {
  const std::vector<std::string> names = cannot_run(settings);
  if (!names.empty())
    throw UsageError(expectation("fit", "settings that can run, because fit makes dry runs",
                                 join(names, ", "),
                                 "headroom estimate --quick, which answers by formula"));
  if (options.over == Over::seq && task_of(config, settings) == models::Task::image_classification)
    throw UsageError(expectation("fit", "a model of sequences for --over seq",
                                 config.type() + ", which takes images", "--over batch"));
}

Bounds bounds_of(const ModelConfig& config, const Settings& settings, const FitOptions& options) {
  const bool of_lengths = options.over == Over::seq;
  Bounds bounds{.at_least = options.at_least, .at_most = options.at_most};
  if (of_lengths) bounds.first = first_length(settings);
  if (of_lengths) bounds.growth.power = 2;
  if (settings.loss == model::LossForm::chunked) {
    bounds.growth.tokens = of_lengths ? settings.batch : sequence_length(config, settings);
    bounds.growth.chunk = settings.loss_chunk;
    // A size with several chunks, the last of them incomplete.
    bounds.first = std::max(bounds.first, 2 * settings.loss_chunk / bounds.growth.tokens + 1);
  }
  if (!of_lengths) return bounds;
  if (const auto longest = longest_sequence(config))
    bounds.at_most = std::min(bounds.at_most.value_or(*longest), *longest);
  return bounds;
}

template <typename Number>
Json or_null(const std::optional<Number>& number) {
  return number ? Json(*number) : Json();
}

// ---- From a child process ----

Json found_to_json(const Largest& found) {
  Json probes = Json::array();
  for (const Probe& probe : found.probes)
    probes.push_back({{"batch", probe.size},
                      {"fits", probe.fits},
                      {"peak_reserved_bytes", probe.peak_reserved.count}});
  return {{"max_batch", or_null(found.size)},
          {"recommended_batch", or_null(found.recommended)},
          {"capped", found.capped},
          {"proven", found.is_proven},
          {"probes", std::move(probes)}};
}

std::optional<std::int64_t> number_or_nothing(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional(json.get<std::int64_t>());
}

Largest found_from_json(const Json& json) {
  Largest found{.size = number_or_nothing(json.at("max_batch")),
                .capped = json.at("capped").get<bool>(),
                .is_proven = json.at("proven").get<bool>(),
                .recommended = number_or_nothing(json.at("recommended_batch")),
                .probes = {}};
  for (const Json& probe : json.at("probes"))
    found.probes.push_back({.size = probe.at("batch").get<std::int64_t>(),
                            .fits = probe.at("fits").get<bool>(),
                            .peak_reserved = bytes_from(probe.at("peak_reserved_bytes"))});
  return found;
}

}  // namespace

Settings with(const Settings& settings, Over over, std::int64_t size) {
  Settings changed = settings;
  if (over == Over::batch)
    changed.batch = size;
  else
    changed.seq = size;
  return changed;
}

FitResult fit(const model::NamedModel& model, const Settings& settings,
              const gpu::SimulatedCard& card, const FitOptions& options) {
  check(model.config, settings, options);
  const auto step_of = [&](std::int64_t size) -> dryrun::MakeSubject {
    return [&model, of = with(settings, options.over, size)](c10::Device device) {
      return training_step(model.config, of, device).subject;
    };
  };
  const auto find = [&] {
    return find_largest(bounds_of(model.config, settings, options), step_of, card, options.margin,
                        settings.steps,
                        {.rules = options.rules,
                         .settings = options.allocator,
                         .cublas_workspaces = options.rules == sim::Rules::cuda});
  };
  FitResult result{.model = model.name,
                   .settings = settled(model.config, settings, options.over),
                   .over = options.over,
                   .card = card,
                   .found = {}};
  result.found = !sim::needs_child()
                     ? find()
                     : found_from_json(
                           parse_json(sim::in_child([&] { return to_line(found_to_json(find())); }),
                                      "the answer of a child process"));
  return result;
}

FitResult fit(const model::NamedModel& model, const Settings& settings,
              const std::vector<gpu::SimulatedCard>& cards, const FitOptions& options) {
  const auto smallest = std::min_element(
      cards.begin(), cards.end(),
      [](const auto& one, const auto& other) { return room_of(one) < room_of(other); });
  if (smallest == cards.end())
    throw UsageError(expectation("fit", "a card", "none", "--gpus \"RTX 4090\""));
  return fit(model, settings, *smallest, options);
}

answer::Fit answer_of(const FitResult& result) {
  answer::Fit fit{.model = result.model,
                  .settings = result.settings,
                  .card = result.card,
                  .over = result.over,
                  .size = result.found.size,
                  .recommended = result.found.recommended,
                  .capped = result.found.capped,
                  .is_proven = result.found.is_proven};
  for (const Probe& probe : result.found.probes)
    fit.tried.push_back({.size = probe.size,
                         .fits = probe.fits,
                         .process = probe.peak_reserved + result.context(),
                         .reserved = probe.peak_reserved});
  return fit;
}

}  // namespace headroom::estimate

#include "headroom/forecast/closed_form.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/forecast/detail/architectures.h"
#include "headroom/forecast/detail/decide.h"
#include "headroom/forecast/detail/optimizer_step.h"
#include "headroom/gpu/attention_memory.h"

namespace headroom::forecast {
namespace {

using detail::Held;
using detail::Network;
using detail::Parameter;
using detail::Phase;
using detail::Situation;
using detail::Sizes;
using detail::Tape;
using detail::Type;

Type type_of(model::Dtype dtype) {
  return dtype == model::Dtype::float32    ? Type::float32
         : dtype == model::Dtype::bfloat16 ? Type::bfloat16
                                           : Type::float16;
}

Situation situation_of(const model::ModelConfig& config, const model::Settings& settings,
                       const gpu::DeviceProfile* profile) {
  Situation of;
  of.task = *settings.task;
  of.rows = settings.batch;
  of.length = settings.seq.value_or(1);
  of.target = settings.target_seq.value_or(of.length);
  of.image = settings.image.value_or(1);
  of.type = type_of(settings.dtype);
  if (settings.autocast != model::Autocast::none)
    of.low = settings.autocast == model::Autocast::bf16 ? Type::bfloat16 : Type::float16;
  of.trains = settings.mode == model::Mode::train;
  of.eager = settings.attention == model::Attention::eager;
  of.newest = settings.transformers == model::Transformers::v5;
  of.has_mask = settings.mask == model::Mask::ones;
  const bool asked = settings.use_cache || settings.mode == model::Mode::generate;
  const bool recomputes = of.trains && settings.checkpoint_every > 0;
  of.keeps_cache = asked && !recomputes && !(config.type() == "gemma2" && of.trains && !of.newest);
  of.holds_outputs = settings.hold_outputs;
  of.chip = gpu::chip_number(profile);
  return of;
}

// ---- Resident memory ----

struct Standing {
  Sizes parameters, gradients, states, trained;
  Sizes buckets;  // of gradients that data parallel training sends
  std::int64_t inputs = 0;
};

void add(Sizes& sum, const Sizes& one, std::int64_t times = 1) {
  sum.bytes += one.bytes * times;
  sum.rounded += one.rounded * times;
}
Sizes one(std::int64_t bytes) {
  return {bytes, detail::rounded(bytes)};
}
Sizes share(const Sizes& of, int world) {
  return {(of.bytes + world - 1) / world, (of.rounded + world - 1) / world};
}

std::int64_t input_bytes(const Situation& of, const model::ModelConfig& config) {
  constexpr std::int64_t kLong = 8;
  if (of.task == model::Task::image_classification)
    return of.rows * config.at_least_1("num_channels") * of.image * of.image * size_of(of.type) +
           (of.trains ? of.rows * kLong : 0);
  const std::int64_t labels = of.task == model::Task::sequence_classification ? of.rows
                              : of.task == model::Task::seq2seq_lm            ? of.rows * of.target
                                                                              : of.rows * of.length;
  return kLong * (of.rows * of.length * (of.has_mask ? 2 : 1) + (of.trains ? labels : 0));
}

// The parameters of the largest unit that is gathered at once: a layer or another module.
Sizes largest_unit(Network& net) {
  std::vector<Sizes> units(net.modules.size());
  for (const Parameter& parameter : net.tape.parameters())
    add(units[static_cast<std::size_t>(parameter.module)], one(parameter.bytes()), parameter.times);
  Sizes most;
  for (std::size_t i = 0; i < units.size(); ++i) {
    const std::int64_t layers = std::max<std::int64_t>(net.modules[i].layers, 1);
    if (units[i].rounded / layers > most.rounded)
      most = {units[i].bytes / layers, units[i].rounded / layers};
  }
  return most;
}

Standing standing_of(Network& net) {
  Standing of;
  for (const Parameter& parameter : net.tape.parameters()) {
    add(of.parameters, one(parameter.bytes()), parameter.times);
    if (!parameter.trained) continue;
    add(of.trained, one(parameter.bytes()), parameter.times);
    add(of.states, detail::state_of(net.settings, parameter), parameter.times);
  }
  of.gradients = of.trained;
  of.inputs = input_bytes(net.situation, net.config);
  return of;
}

// Applies ZeRO and offloading: leaves their share on the card and adds the rest to host or disk.
void move_away(Standing& of, Network& net, Forecast& forecast) {
  const model::Settings& settings = net.settings;
  Bytes& elsewhere =
      settings.offload.to == model::OffloadTo::host ? forecast.on_host : forecast.on_disk;
  const int world = std::max(settings.world, 1);
  if (settings.zero >= 1) of.states = share(of.states, world);
  if (settings.zero >= 2) of.gradients = share(of.gradients, world);
  const Sizes whole = of.parameters;
  if (settings.zero >= 3) of.parameters = share(of.parameters, world);
  if (settings.offload.optimizer) {
    elsewhere += Bytes{of.states.bytes};
    of.states = {};
  }
  if (settings.offload.gradients) {
    elsewhere += Bytes{of.gradients.bytes};
    of.gradients = {};
  }
  if (settings.offload.parameters) {
    elsewhere += Bytes{of.parameters.bytes};
    of.parameters = {};
  }
  // The running layer, and the next one, which is fetched meanwhile.
  if (of.parameters.bytes < whole.bytes) {
    const Sizes unit = largest_unit(net);
    add(of.parameters, unit, 2);
    of.parameters.bytes = std::min(of.parameters.bytes, whole.bytes);
    of.parameters.rounded = std::min(of.parameters.rounded, whole.rounded);
  }
  forecast.offloaded_activations = Bytes{net.tape.activations_elsewhere()};
  elsewhere += forecast.offloaded_activations;
}

// ---- The peak ----

struct Candidate {
  trace::Phase phase;
  Held held;
  bool with_states = true, with_gradients = true;
};

Sizes workspace_of(const gpu::DeviceProfile* profile, bool trains) {
  if (profile == nullptr) return {};
  Sizes all;
  if (profile->cublas_workspace) add(all, one(profile->cublas_workspace->count));
  if (profile->cublaslt_workspace) add(all, one(profile->cublaslt_workspace->count));
  return trains ? Sizes{2 * all.bytes, 2 * all.rounded} : all;  // one thread for each pass
}

trace::Parts parts_of(const Candidate& candidate, const Standing& standing, const Network& net,
                      const Sizes& workspace) {
  const Sizes states = candidate.with_states ? standing.states : Sizes();
  const Sizes gradients = candidate.with_gradients ? standing.gradients : Sizes();
  trace::Parts parts{
      .parameters = Bytes{standing.parameters.bytes},
      .buffers = Bytes{net.buffer_bytes},
      .inputs = Bytes{standing.inputs},
      .gradients = Bytes{candidate.held.gradients + gradients.bytes + standing.buckets.bytes},
      .optimizer = Bytes{states.bytes},
      .activations = Bytes{candidate.held.activations},
      .temporaries = Bytes{candidate.held.temporaries},
      .workspace = Bytes{workspace.bytes},
      .rounding = {}};
  const std::int64_t all = standing.parameters.rounded + net.buffer_bytes + standing.inputs +
                           states.rounded + gradients.rounded + standing.buckets.rounded +
                           candidate.held.rounded + workspace.rounded;
  parts.rounding = Bytes{std::max<std::int64_t>(0, all - parts.total().count)};
  return parts;
}

void take_highest(Forecast& forecast, const std::vector<Candidate>& candidates,
                  const Standing& standing, const Network& net, const Sizes& workspace) {
  for (const Candidate& candidate : candidates) {
    const trace::Parts parts = parts_of(candidate, standing, net, workspace);
    if (parts.total() < forecast.at_peak.total()) continue;
    forecast.at_peak = parts;
    forecast.phase = candidate.phase;
  }
}

// ---- By module ----

void list_work(Forecast& forecast, Network& net) {
  for (std::size_t i = 0; i < net.modules.size(); ++i) {
    const auto number = static_cast<int>(i);
    forecast.work.push_back({.name = net.modules[i].name,
                             .layers = static_cast<std::int64_t>(net.modules[i].kinds.size()),
                             .kinds = net.modules[i].kinds,
                             .kept = Bytes{std::max<std::int64_t>(0, net.modules[i].activations)},
                             .forward = net.tape.effort_of(number, Phase::forward),
                             .backward = net.tape.effort_of(number, Phase::backward)});
    forecast.effort += forecast.work.back().forward;
    forecast.effort += forecast.work.back().backward;
  }
  for (const Parameter& parameter : net.tape.parameters()) {
    ModuleWork& module = forecast.work[static_cast<std::size_t>(parameter.module)];
    const std::int64_t gradient = parameter.trained ? parameter.bytes() : 0;
    module.resident +=
        Bytes{(parameter.bytes() + gradient + detail::state_of(net.settings, parameter).bytes) *
              parameter.times};
    module.gradients += Bytes{gradient * parameter.times};
    module.parameters += parameter.count() * parameter.times;
    if (parameter.trained) module.trainable_parameters += parameter.count() * parameter.times;
  }
}

// After list_work.
void list_modules(Forecast& forecast, Network& net) {
  std::vector<ModuleMemory> all(net.modules.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].name = net.modules[i].name;
    all[i].parameters = forecast.work[i].parameters;
    all[i].bytes = forecast.work[i].resident + forecast.work[i].kept;
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::int64_t layers = net.modules[i].layers;
    if (layers == 0) forecast.by_module.push_back(all[i]);
    for (std::int64_t j = 0; j < layers; ++j)
      forecast.by_module.push_back({all[i].name + "." + std::to_string(j),
                                    all[i].parameters / layers, all[i].bytes / layers});
  }
}

Tape::Options tape_options(const model::Settings& settings, bool trains,
                           const gpu::DeviceProfile* chip) {
  Tape::Options options;
  options.chip = chip;
  options.records = trains;
  options.autocast = settings.autocast != model::Autocast::none;
  options.steps_in_backward = settings.optimizer_in_backward;
  options.gradients_are_there = trains && !settings.optimizer_in_backward &&
                                (settings.accumulation > 1 || settings.zero_gradients);
  if (settings.optimizer_in_backward)
    options.bytes_of_step = [&settings](const Parameter& parameter) {
      return detail::temporaries_of_one(settings, parameter);
    };
  if (settings.zero >= 2) options.kept_share_of_gradients = 1.0 / std::max(settings.world, 1);
  if (settings.offload.gradients) options.kept_share_of_gradients = 0;
  options.keeps_activations = !settings.offload.activations;
  return options;
}

// ---- Training and the other modes ----

void run_inference(Forecast& forecast, Network& net, const gpu::DeviceProfile* profile) {
  (void)detail::described(net);
  net.end_module();
  Standing standing = standing_of(net);
  standing.states = standing.gradients = {};
  move_away(standing, net, forecast);
  take_highest(forecast, {{trace::Phase::forward, net.tape.peak(Phase::forward)}}, standing, net,
               workspace_of(profile, false));
  forecast.resident = Bytes{standing.parameters.bytes};
}

// Runs both passes on the tape. Returns the bytes of the outputs, which a loop may hold.
std::int64_t run_passes(Network& net) {
  Tape& tape = net.tape;
  detail::Value loss = detail::described(net);
  net.end_module();
  std::int64_t outputs = 0;
  for (const detail::Value& value : net.held) outputs += value.count * size_of(value.type);
  for (const detail::Value& value : net.cache) outputs += value.count * size_of(value.type);
  if (!net.settings.hold_outputs) net.held.clear();
  net.cache.clear();
  tape.forget_low_copies();
  if (loss.has_gradient()) tape.backward(std::move(loss));
  return outputs;
}

// Optimizer states exist from the second step on. Gradients exist before their backward pass if
// they are accumulated or filled with zeros. The last outputs live until new ones replace them.
std::vector<Candidate> passes_at_their_highest(const Network& net, std::int64_t outputs,
                                               bool gradients_are_there) {
  const model::Settings& settings = net.settings;
  Candidate forward{trace::Phase::forward, net.tape.peak(Phase::forward)},
      backward{trace::Phase::backward, net.tape.peak(Phase::backward)};
  if (settings.hold_outputs && (settings.steps > 1 || settings.accumulation > 1)) {
    forward.held.activations += outputs;
    forward.held.rounded += detail::rounded(outputs);
  }
  forward.with_states = backward.with_states = settings.steps > 1;
  forward.with_gradients = backward.with_gradients = gradients_are_there;
  return {forward, backward};
}

Candidate step_at_its_highest(Network& net, std::int64_t outputs) {
  const model::Settings& settings = net.settings;
  Candidate step{trace::Phase::optimizer, net.tape.live()};
  step.held.gradients = 0;
  step.held.rounded = detail::rounded(settings.hold_outputs ? outputs : 0);
  step.with_gradients = !settings.optimizer_in_backward;
  if (settings.offload.optimizer || settings.optimizer_in_backward) return step;
  Sizes temporaries = detail::temporaries_of_step(settings, net.tape.parameters());
  if (settings.zero >= 1) temporaries = share(temporaries, std::max(settings.world, 1));
  step.held.temporaries += temporaries.bytes;
  step.held.rounded += temporaries.rounded;
  return step;
}

void run_training(Forecast& forecast, Network& net, const Tape::Options& options,
                  const gpu::DeviceProfile* profile) {
  const std::int64_t outputs = run_passes(net);
  std::vector<Candidate> candidates =
      passes_at_their_highest(net, outputs, options.gradients_are_there);
  candidates.push_back(step_at_its_highest(net, outputs));
  Standing standing = standing_of(net);
  move_away(standing, net, forecast);
  if (net.settings.world > 1 && net.settings.zero == 0) {
    standing.buckets = standing.trained;
    forecast.assumed.push_back(
        "gradients once more, in the buckets in which data parallel training sends them");
  }
  take_highest(forecast, candidates, standing, net, workspace_of(profile, true));
  forecast.resident = Bytes{standing.parameters.bytes + standing.gradients.bytes +
                            standing.buckets.bytes + standing.states.bytes};
}

Forecast counted(const model::ModelConfig& config, const model::Settings& settings,
                 const gpu::DeviceProfile* profile) {
  Forecast forecast;
  forecast.settings = settings;
  detail::decide(forecast, config);
  const Situation situation = situation_of(config, forecast.settings, profile);
  const Tape::Options options = tape_options(forecast.settings, situation.trains, profile);
  Network net(config, forecast.settings, situation, options);
  if (situation.trains)
    run_training(forecast, net, options, profile);
  else
    run_inference(forecast, net, profile);
  list_work(forecast, net);
  for (const ModuleWork& module : forecast.work) {
    forecast.parameters += module.parameters;
    forecast.trainable_parameters += module.trainable_parameters;
  }
  list_modules(forecast, net);
  // The dry run knows the full name of each layer and refuses targets that match none.
  for (const std::string& target : net.targets_not_met())
    forecast.assumed.push_back("no adapters for `" + target +
                               "`: by formula no layer is called so");
  forecast.reserved = reserved_for(forecast.at_peak);
  forecast.process = forecast.reserved;
  if (profile != nullptr && profile->context) forecast.process += *profile->context;
  return forecast;
}

}  // namespace

Forecast forecast_of(const model::ModelConfig& config, const model::Settings& settings,
                     const gpu::DeviceProfile* profile) {
  try {
    return counted(config, settings, profile);
  } catch (const detail::TooLarge&) {
    throw TooLargeError(expectation(
        "forecast", "a model and a batch that some machine could hold in " + config.source(),
        "more than " + to_string(Bytes{std::int64_t{1} << detail::kMostBytesPower}),
        "smaller sizes in the file, or a smaller batch"));
  }
}

long long count_parameters(const model::ModelConfig& config) {
  model::Settings settings;
  settings.mode = model::Mode::inference;
  return forecast_of(config, settings).parameters;
}

// The allocator takes 20 MiB for what has 1 to 10 MiB, and 2 MiB for smaller ones: half of each is
// unused. Small runs have few of the larger kind.
Bytes reserved_for(const trace::Parts& at_peak) {
  constexpr std::int64_t kSegment = 2 << 20, kUnused = 11 << 20;
  const Bytes standing = at_peak.parameters + at_peak.buffers + at_peak.optimizer,
              moving = at_peak.gradients + at_peak.activations + at_peak.temporaries;
  const std::int64_t unused = std::min(kUnused, at_peak.total().count / 4);
  const std::int64_t bytes = (at_peak.total() + standing / 25 + moving / 10).count + unused;
  return Bytes{(bytes + kSegment - 1) / kSegment * kSegment};
}

}  // namespace headroom::forecast

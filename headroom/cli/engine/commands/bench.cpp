// `headroom-engine bench`: a model of `headroom bench run`, in a process of its own; and where it
// would have ended on one card.
#include <sys/prctl.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "headroom/base/file.h"
#include "headroom/base/interrupt.h"
#include "headroom/bench/model_run.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/cli/engine/commands.h"
#include "headroom/cli/engine/train/run_options.h"
#include "headroom/cli/engine/train/training_machine.h"
#include "headroom/cli/engine/train/training_record.h"
#include "headroom/forecast/by_layer.h"
#include "headroom/libtorch/failure.h"
#include "headroom/recipe/recipe.h"
#include "headroom/train/step.h"

namespace headroom::cli {
namespace {

// ---- One card ----

// Layers whose weights, one after another, take no more than these bytes.
std::int64_t layers_in(const config::Training& training, Bytes bytes) {
  model::Settings settings = training.settings;
  settings.mode = model::Mode::inference;
  const auto weights = forecast::by_layer<Bytes>(
      forecast::forecast_of(training.model.config, settings), [](const auto& module) {
        return Bytes{module.resident.count / std::max<std::int64_t>(1, module.layers)};
      });
  std::int64_t layers = 0;
  for (Bytes sum; layers < static_cast<std::int64_t>(weights.size()); ++layers) {
    sum += weights[static_cast<std::size_t>(layers)];
    if (sum > bytes) break;
  }
  return layers;
}

// A whole batch at once, as a program without a plan begins.
Json on_one_card(const Json& request) {
  const config::Training training = training_of(request);
  const sim::Simulation box = sim::simulate(request.at("gpus").get<std::string>());
  const char* when = "while the model was made";
  try {
    recipe::Recipe recipe = recipe::make(training, {box.device(0)});
    when = "in the first step";
    recipe.step.prices = recipe.step.adapts = false;
    recipe.step.spill.reset();
    recipe.step.ladder.max_retries = 0;
    static_cast<void>(train::Step(recipe.team, recipe.step).run(recipe.batches.next()));
  } catch (...) {
    if (!libtorch::is_out_of_memory(std::current_exception())) throw;
  }
  const auto refused = box.card(0).last_out_of_memory();
  if (!refused) return {{"fits", true}};
  Json answer{{"fits", false},
              {"when", when},
              {"asked_bytes", refused->requested.count},
              {"free_bytes", refused->free.count},
              {"total_bytes", refused->capacity.count}};
  if (std::string_view(when).starts_with("while"))
    answer["layer"] = layers_in(training, refused->allocated) + 1;
  return answer;
}

// ---- All cards ----

ExitCode train_model(const Json& request) {
  // Ends with `headroom bench`, whatever ends that.
  static_cast<void>(::prctl(PR_SET_PDEATHSIG, SIGKILL));
  const Interrupt interrupt;
  const config::Training training = training_of(request);
  TrainingMachine machine(request);
  TrainingRecord record(request, machine, training);
  ProgressLine line(10);
  const std::string name = request.at("name");
  bench::ModelRunOptions options{.is_dry = request.at("dry_run").get<bool>()};
  options.guide = [&](train::StepOptions& step, train::EvaluationOptions& evaluation) {
    machine.share.guide(step, evaluation, [&] { return machine.own; });
  };
  options.on_step = [&](std::int64_t step, std::int64_t steps) {
    line.show(name + ": step " + std::to_string(step) + " of " + std::to_string(steps) +
              (options.is_dry ? ", dry" : ""));
  };
  options.on_line = [&](std::string_view text) {
    line.clear();
    print_error("headroom bench: " + name + ": " + std::string(text) + "\n");
  };
  options.on_event = [&](const train::Event& event) { record.hear(event); };
  options.should_stop = [&] { return interrupt.happened(); };
  const bench::ModelRun run = bench::run_model(training, machine.own, options);
  line.clear();
  write_file_atomically(request.at("result").get<std::string>(), to_line(to_json(run)) + "\n");
  record.write({}, /*survived=*/!run.no_room);
  if (interrupt.happened()) return interrupt.exit_code();
  return run.no_room ? kOutOfMemory : kOk;
}

}  // namespace

ExitCode run_bench(const Json& request) {
  if (request.at("what") == "train") return train_model(request);
  print(to_line(on_one_card(request)) + "\n");
  return kOk;
}

}  // namespace headroom::cli

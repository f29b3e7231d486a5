// `headroom trace replay`: the memory of a trace on another card or with other settings.
#include <nlohmann/json.hpp>

#include "headroom/base/json.h"
#include "headroom/cli/core/commands/trace.h"
#include "headroom/cli/core/commands/trace_replay_view.h"

namespace headroom::cli {
namespace {

struct TraceReplayOptions {
  TraceFile file;
  CardChoice card;
  std::vector<std::string> allocator;
  bool compare = false, smallest = false;
  bool json = false;
};

std::vector<trace::CardSetup> setups_from(const TraceReplayOptions& options,
                                          const trace::About& about) {
  std::vector<trace::CardSetup> setups{options.card.setup()};
  if (!options.allocator.empty()) setups[0].settings = options.allocator[0];
  if (options.compare) setups = trace::usual_setups(setups[0], about);
  for (std::size_t i = 1; i < options.allocator.size(); ++i) {
    setups.push_back(options.card.setup());
    setups.back().settings = options.allocator[i];
  }
  return setups;
}

ReplayAnswer find_out(const TraceReplayOptions& options) {
  const auto reader = trace::open_trace(options.file.path);
  const auto setups = setups_from(options, reader->about());
  TraceProgress progress(options.file.name());
  trace::ReplayOptions replay;
  replay.operations.name = options.file.name();
  replay.operations.device = options.file.device_number();
  replay.progress = [&](const trace::Reader& at) { progress.show(at); };
  ReplayAnswer answer{.file = options.file, .card = options.card, .about = reader->about()};
  if (options.smallest) {
    trace::Operations operations(*reader, replay.operations);
    const trace::LoadedTrace loaded(*reader, operations, replay);
    for (const trace::CardSetup& setup : setups) {
      answer.cards.push_back(loaded.play(setup));
      answer.smallest.push_back(
          loaded.smallest_capacity(setup, [&](int tried) { progress.show_search(tried); }));
    }
    progress.clear();
    answer.noticed = operations.noticed();
  } else {
    trace::WhatIf result = trace::what_if(*reader, setups, replay);
    progress.clear();
    answer.cards = std::move(result.cards);
    answer.noticed = std::move(result.noticed);
  }
  warn_of(options.file, *reader, answer.noticed);
  return answer;
}

ExitCode run_trace_replay(const TraceReplayOptions& options) {
  const ReplayAnswer answer = find_out(options);
  if (options.json) {
    print(to_line(replay_document(answer)) + "\n");
    return kOk;
  }
  print(replay_text(answer, standard_output()));
  return kOk;
}

}  // namespace

void add_trace_replay(Registry& registry, CLI::App* group) {
  auto [command, options] = registry.add(
      &run_trace_replay, "replay", "Compute the memory of a trace with other settings or cards",
      "  headroom trace replay run.hrtrace\n"
      "  headroom trace replay snapshot.pickle --capacity 24GiB --compare\n"
      "  headroom trace replay run.hrtrace --allocator \"\" --allocator expandable_segments:True\n"
      "  headroom trace replay run.hrtrace --capacity \"RTX 4090\" --smallest-capacity\n"
      "  headroom trace replay snapshot.pickle --torch 2.15\n"
      "  printf 'a 1 3000000\\nf 1\\n' | headroom trace replay - --json\n\n"
      "The model is PyTorch's caching allocator. It skips a refused request and goes on. It\n"
      "does not include the CUDA context: subtract that from --capacity.",
      group);
  options->file.add_to(command);
  command
      ->add_option("--allocator", options->allocator,
                   "Allocator settings, as in PYTORCH_CUDA_ALLOC_CONF (default: as recorded); "
                   "repeat it to compare settings")
      ->allow_extra_args(false);
  options->card.add_to(command);
  command->add_flag("--compare", options->compare,
                    "Also try the usual settings, and say which is best");
  command->add_flag("--smallest-capacity", options->smallest,
                    "Also search for the smallest card that refuses no request");
  command->add_flag("--json", options->json, "Print one JSON document (sizes in bytes)");
}

}  // namespace headroom::cli

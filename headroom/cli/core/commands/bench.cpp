// `headroom bench run`: models of several sizes, each planned for the cards, trained and reported.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/benching/bench_results.h"
#include "headroom/cli/core/benching/bench_table.h"
#include "headroom/cli/core/benching/benched_model.h"
#include "headroom/cli/core/planning/planner.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/cli/core/whole_number.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

struct BenchOptions {
  BenchQuestion question;
  std::string out = "headroom-bench";
  bool fresh = false, json = false;
};

// Before the first model takes an hour.
BenchQuestion checked(const BenchOptions& options) {
  BenchQuestion question = options.question;
  question.out = options.out;
  std::set<std::string> names;
  for (const std::string& model : question.models) {
    if (!names.insert(model).second)
      throw UsageError(expectation("--models", "each model once", model + " twice"));
    check(question.of(model));
  }
  if (question.trace) {
    std::error_code error;
    fs::create_directories(*question.trace, error);
    if (error) throw WriteError(*question.trace + ": " + error.message());
  }
  return question;
}

// The worst that happened to a model.
ExitCode exit_code_of(const Json& results) {
  ExitCode worst = kOk;
  for (const Json& model : results.at("models")) {
    const std::string state = model.at("state");
    if (state == "failed") return kFailed;
    if (state == "out of memory") worst = kOutOfMemory;
    if (state == "does not fit" && worst == kOk) worst = kDoesNotFit;
  }
  return worst;
}

ExitCode run_bench(const BenchOptions& options) {
  const BenchQuestion question = checked(options);
  BenchResults results(question, options.fresh);
  if (!results.earlier().empty())
    print_error("headroom bench: going on in " + options.out + ", where " + results.earlier() +
                " are done; --fresh begins anew\n");
  for (const std::string& model : question.models) try {
      if (!results.has(model)) results.add(benched_model(question, model));
    } catch (const Stopped& stopped) {
      print_error("headroom bench: stopped at " + model + "; the same command goes on there\n");
      return 128 + stopped.signal;
    }
  results.complete();
  const Json& document = results.document();
  if (options.json)
    print(to_line(document) + "\n");
  else
    print(bench_table(document, standard_output()));
  print_error("headroom bench: " + options.out + "/results.json and report.html written\n");
  return exit_code_of(document);
}

}  // namespace

void add_bench(Registry& registry) {
  CLI::App* group =
      registry.add("bench", "Train models of several sizes on these cards, and report",
                   "  headroom bench run --models 7B 13B --samples 1000");
  group->require_subcommand(1);
  auto [command, options] = registry.add(
      &run_bench, "run", "Plan, train and evaluate each model, and write a report",
      "  headroom bench run --models 7B 11B 13B 20B --gpus sim:8x31.36GiB\n"
      "  headroom bench run --models gpt2 1.3B --samples 200 --gpus all --out runs/bench\n"
      "  headroom bench run --models gpt-tiny --compute --gpus sim:2x64MiB --seq 64\n"
      "  headroom bench run --models 33B 70B --tune any --gpus sim:8x31.36GiB --json\n\n"
      "Each model gets the fastest plan that fits, and a process of its own. If memory runs out\n"
      "in every form of a plan, a lighter way to train follows, which the report marks. On\n"
      "simulated cards steps are dry: memory is exact, times are estimates. Without other "
      "settings:\n"
      "--batch 32 --seq 1024 --dtype bfloat16, all weights, AdamW, made-up data.\n"
      "Ctrl-C ends it; the same command goes on with the model it was at.\n"
      "Exit: 0 all models finished, 2 one does not fit, 76 one ran out of memory in every plan,\n"
      "1 one failed, 64 wrong usage, 65 a wrong configuration, 69 no such GPU, 73 cannot write,\n"
      "75 busy: the folder or the cards are in use, 130 after Ctrl-C.",
      group);
  BenchQuestion& question = options->question;
  command
      ->add_option("--models", question.models, "Names, sizes (7B), or folders with a config.json")
      ->required()
      ->option_text("MODEL ...");
  command->add_option("--samples", question.samples, "Samples that each model is trained on")
      ->check(whole_number(1, std::int64_t{1} << 40))
      ->capture_default_str();
  command->add_option("--out", options->out, "Folder for results.json and report.html")
      ->capture_default_str();
  command->add_flag("--fresh", options->fresh, "Begin anew where an earlier benchmark was ended");
  command->add_flag("--compute", question.computes,
                    "Compute the steps of simulated cards, on the CPU");
  command->add_option("--trace", question.trace,
                      "Folder for a trace of each model's memory, a file a card");
  command
      ->add_option("--clean-every", question.clean_every,
                   "Steps between clean-ups of the cache; 0: none. They cost time")
      ->check(whole_number(0, std::int64_t{1} << 40))
      ->capture_default_str();
  command
      ->add_option("--inject", question.inject,
                   "For tests, on simulated cards: as in `headroom train`, for each model")
      ->allow_extra_args(false);
  question.plan.add_to(command);
  command->add_flag("--json", options->json, "Print results.json (sizes in bytes)");
}

}  // namespace headroom::cli

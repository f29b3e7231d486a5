// `headroom rehearse`: runs an unchanged training script on simulated cards and reports its memory.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "headroom/answer/page.h"
#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/command_behind.h"
#include "headroom/cli/core/complaint.h"
#include "headroom/cli/core/output_files.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/view/fit_view.h"
#include "headroom/cli/core/view/rehearsal_view.h"
#include "headroom/cli/core/whole_number.h"
#include "headroom/edit/knobs.h"
#include "headroom/machine/cards_to_fill.h"
#include "headroom/rehearse/advice.h"
#include "headroom/rehearse/answer.h"
#include "headroom/rehearse/floor.h"
#include "headroom/rehearse/largest.h"

namespace headroom::cli {
namespace {

using rehearse::Orders;
using rehearse::Rehearsal;

struct RehearseOptions {
  CLI::App* app = nullptr;
  const std::vector<std::string>* behind_dashes = nullptr;
  std::string gpus, mode = "shape-only", rules = "cuda", trace, snapshot, html;
  std::vector<std::string> maps;
  bool fit = false, advice = false, spill = false;
  int steps = 3;
  std::vector<double> assume_true = {0.5};
  std::optional<int> ranks;
  bool all_ranks = false, keep_writes = false, json = false;
};

// "2xH100" means simulated ones here, as in Python.
bool is_count_of_cards(const std::string& gpus) {
  const std::size_t end = gpus.find_first_not_of("0123456789");
  return end != std::string::npos && end > 0 && gpus[end] == 'x';
}

answer::EventFiles files_of(const RehearseOptions& options) {
  return {.trace = options.trace, .snapshot = options.snapshot, .html = options.html};
}

std::vector<gpu::SimulatedCard> cards_for(const RehearseOptions& options) {
  const std::string gpus = options.gpus.empty() ? "all" : options.gpus;
  std::vector<gpu::SimulatedCard> cards =
      machine::cards_to_fill(is_count_of_cards(gpus) ? "sim:" + gpus : gpus);
  if (cards.empty())
    throw UnavailableError(expectation("--gpus", "cards to rehearse on", "none",
                                       "--gpus sim:2xH100, or --gpus \"RTX 4090\""));
  return cards;
}

// Before the rehearsal, whose answer would be lost.
Orders orders_from(const RehearseOptions& options) {
  const std::vector<std::string> command =
      command_behind(*options.app, *options.behind_dashes, "headroom rehearse -- python train.py");
  check_outputs("rehearse", {options.trace, options.snapshot, options.html}, command);
  if (options.keep_writes && options.mode != "compute")
    throw UsageError(
        expectation("--keep-writes", "--mode compute, in which tensors have values", options.mode));
  if (options.fit != !options.maps.empty())
    throw UsageError(
        options.fit ? expectation("--fit", "--map beside it, which says where the batch is set",
                                  "none", "--fit --map \"--batch-size=batch\"")
                    : expectation("--map", "--fit beside it, which searches for the batch", "none",
                                  "--fit --map \"" + options.maps.front() + "\""));
  if (options.assume_true.size() > 1 && options.mode == "compute")
    throw UsageError(expectation("--assume-true",
                                 "one share beside --mode compute, which knows all values", "two"));
  if (options.assume_true.size() > 1 &&
      (options.fit || !options.trace.empty() || !options.snapshot.empty() || !options.html.empty()))
    throw UsageError(expectation("--assume-true",
                                 "one share beside --fit, --trace, --snapshot and --html", "two"));
  if (options.spill && (options.fit || options.assume_true.size() > 1))
    throw UsageError(
        expectation("--spill", "one question at a time",
                    options.fit ? "--fit beside it" : "two shares of --assume-true beside it"));
  if (options.ranks && options.all_ranks)
    throw UsageError(expectation("rehearse", "--ranks or --all-ranks", "both"));
  return {.command = command,
          .cards = cards_for(options),
          .mode = options.mode,
          .rules = options.rules,
          .steps = options.steps,
          .assume_true = options.assume_true.front(),
          .ranks = options.ranks,
          .all_ranks = options.all_ranks,
          .keep_writes = options.keep_writes,
          .keeps_events = files_of(options).any(),
          .output_to_error = options.json,
          .say = [](const std::string& text) { print_error("headroom rehearse: " + text + "\n"); }};
}

// The script's own code, where it says why it could not start.
ExitCode code_of_failure(const Rehearsal& rehearsal) {
  if (rehearsal.end.received) return 128 + *rehearsal.end.received;
  return rehearsal.end.exit_code == kUnavailable ? kUnavailable : kFailed;
}

ExitCode tell_nothing_ran(const Orders& orders, const Rehearsal& rehearsal) {
  const std::string& program = orders.command.front();
  if (!rehearsal.end.started) return complain(program + ": " + rehearsal.end.not_started, kFailed);
  print_error(files_text(rehearsal, standard_error()));
  if (rehearsal.end.exit_code == kUnavailable) return kUnavailable;  // it said why
  if (!rehearsal.is_whole())
    return complain("the script ended with " + std::to_string(rehearsal.end.exit_code) +
                        " before it used a card",
                    code_of_failure(rehearsal));
  return complain(
      "the script ended without using a card; try the arguments with which it trains on "
      "CUDA (it must be a Python program that imports torch, started without -I, -E or -S)",
      kFailed);
}

ExitCode run_fit(const RehearseOptions& options, const Orders& orders) {
  const edit::Knobs knobs(options.maps, orders.command);
  const answer::Fit fit = rehearse::find_largest_batch(orders, knobs);
  return print_fit(fit, options.json,
                   fit.size ? knobs.setting(edit::Quantity::batch, *fit.size) : "");
}

void tell_of_failure(const RehearseOptions& options, const Rehearsal& rehearsal,
                     const answer::Answer& answer, ExitCode code) {
  const bool read_zeros = answer.report.values_read_as_zero + answer.report.decided_by_unknown > 0;
  const std::string what = rehearsal.end.received ? "interrupted"
                                                  : fmt::format("the script failed (exit code {})",
                                                                rehearsal.end.exit_code);
  (void)complain(what + "; the figures cover only what it did before" +
                     (read_zeros && options.mode == "shape-only"
                          ? "; values of a card read as zero here, and --mode compute computes them"
                          : ""),
                 code);
}

ExitCode run_rehearse(const RehearseOptions& options) {
  const Orders orders = orders_from(options);
  if (options.fit) return run_fit(options, orders);
  Rehearsal rehearsal = rehearse::rehearse_shares(orders, options.assume_true);
  if (rehearsal.cards.empty()) return tell_nothing_ran(orders, rehearsal);
  const bool failed = !rehearsal.ran_out_of_memory && !rehearsal.is_whole();
  add_notes(rehearsal, orders.cards);
  answer::Answer answer = answer_of(orders, rehearsal, failed);
  answer.notes = rehearsal.notes;
  std::optional<std::vector<rehearse::TriedAdvice>> advice;
  if (options.advice && !failed)
    advice = rehearse::advice_for(orders, answer.tightest()->peak.process);
  std::optional<rehearse::Floor> floor;
  if (options.spill && !failed)
    floor = rehearse::find_floor(orders, answer.tightest()->peak.process);
  const bool is_enough =
      fits(rehearsal, orders.cards) || (floor && floor->here && floor->here->ends);
  const ExitCode code = failed ? code_of_failure(rehearsal) : is_enough ? kOk : kDoesNotFit;
  if (rehearsal.events) answer::write_files(files_of(options), answer, *rehearsal.events);
  tell_of_outputs("rehearse", {options.trace, options.snapshot, options.html});
  if (failed) tell_of_failure(options, rehearsal, answer, code);  // next to the script's own error
  if (options.json) {
    Json document =
        to_json(answer, rehearsal, advice.value_or(std::vector<rehearse::TriedAdvice>{}));
    document["spill"] = floor ? to_json(*floor) : Json();
    document["exit_code"] = code;
    print(to_line(document) + "\n");
  } else {
    print(rehearsal_text(answer, rehearsal, advice, floor, standard_output()));
  }
  return code;
}

}  // namespace

void add_rehearse(Registry& registry) {
  auto [command, options] = registry.add(
      &run_rehearse, "rehearse",
      "Run a training script, unchanged, on simulated GPUs for a few steps and report the memory "
      "it needs",
      "  headroom rehearse --gpus sim:2xH100 -- python train.py --batch-size 64\n"
      "  headroom rehearse --gpus \"RTX 4090\" --steps 5 --trace steps.trace -- python train.py\n"
      "  headroom rehearse --gpus \"RTX 4090\" --html memory.html -- python train.py\n"
      "  headroom rehearse --gpus sim:8xH100 -- torchrun --nproc-per-node 8 train.py\n"
      "  headroom rehearse --gpus H100 --ranks 64 -- python train.py\n"
      "  headroom rehearse --gpus \"RTX 4090\" --fit --map \"--batch-size=batch\" -- \\\n"
      "      python train.py --batch-size 8\n"
      "  headroom rehearse --gpus \"RTX 4090\" --spill -- python train.py\n"
      "  headroom rehearse --gpus sim:1x24GiB --mode compute -- python train.py\n\n"
      "To the script the simulated cards look like CUDA devices. Neither a GPU nor a change is\n"
      "needed; existing files and checkpoints stay as they are. After the last step Headroom ends\n"
      "the script with exit code 0.\n"
      "Exit: 0 it fits (or would with --spill, if that is given), 2 it does not, 1 the script "
      "failed, 69 no cards, no Python with\n"
      "headroom or no matching torch, 64 wrong usage, 73 a file cannot be written.");
  options->app = command;
  options->behind_dashes = &registry.behind_dashes;
  command->prefix_command();
  command->add_option("--gpus", options->gpus,
                      "Cards to simulate: sim:2xH100, \"RTX 4090\", sim:1x24GiB, or real ones by "
                      "number, which are then imitated (default: HEADROOM_GPUS, else all of this "
                      "machine)");
  command->add_option("--steps", options->steps, "Steps of the optimizer to run")
      ->check(whole_number(1, 1000))
      ->capture_default_str();
  command
      ->add_option("--mode", options->mode,
                   "shape-only: in seconds, without values; compute: slowly, with them")
      ->check(CLI::IsMember({"shape-only", "compute"}))
      ->capture_default_str();
  command->add_option("--rules", options->rules, "Kernels to model: cuda (default) or cpu")
      ->check(CLI::IsMember({"cuda", "cpu"}));
  command
      ->add_option(
          "--assume-true", options->assume_true,
          "Share of a mask that is assumed to be true where it decides a size, as in x[mask]; "
          "0,1 rehearses both bounds")
      ->delimiter(',')
      ->expected(1, 2)
      ->allow_extra_args(false)
      ->check(CLI::Range(0.0, 1.0))
      ->default_str("0.5");
  command
      ->add_option("--ranks", options->ranks,
                   "Make the script one rank of this many; the others are simulated")
      ->check(whole_number(1, 1 << 20));
  command->add_flag("--all-ranks", options->all_ranks,
                    "Start every rank that the launcher starts, each with all cards");
  command->add_option("--trace", options->trace, "Write every event to this file (headroom trace)");
  command->add_option("--snapshot", options->snapshot,
                      "Write the events as a snapshot for pytorch.org/memory_viz");
  command->add_option("--html", options->html,
                      "Write a page that shows the memory over time, for a browser");
  command->add_flag(
      "--advice", options->advice,
      "Try what would help: checkpointing, bf16 autocast, a fused or an 8-bit optimizer, "
      "half the micro-batch");
  command->add_flag("--spill", options->spill,
                    "Find how small a card is enough for `headroom run --spill`, and what moves to "
                    "the host then, by some 10 rehearsals");
  command->add_flag("--fit", options->fit,
                    "Find the largest batch that fits, by at most six rehearsals");
  command
      ->add_option(
          "--map", options->maps,
          "Where the command sets its batch, for --fit: \"--flag=batch\", \"key=batch\" or "
          "\"env:NAME=batch\"")
      ->allow_extra_args(false);
  command->add_flag("--keep-writes", options->keep_writes,
                    "In compute mode, let the script write its checkpoints");
  command->add_flag("--json", options->json,
                    "Print one JSON document; the script's own output goes to standard error");
}

}  // namespace headroom::cli

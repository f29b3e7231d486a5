// `headroom estimate`: will it fit? Parses the command line; headroom-engine makes the dry run.
#include <nlohmann/json.hpp>

#include "headroom/answer/by_formula.h"
#include "headroom/answer/page.h"
#include "headroom/base/error.h"
#include "headroom/base/json.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/model_request.h"
#include "headroom/cli/core/output_files.h"
#include "headroom/cli/core/python_step.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/start_engine.h"
#include "headroom/cli/core/view/estimate_view.h"
#include "headroom/cli/core/view/tried_view.h"
#include "headroom/model/can_run.h"

namespace headroom::cli {
namespace {

struct EstimateOptions {
  ModelRequest request;
  std::optional<std::string> trace, html;
  bool quick = false, advice = false, techniques = false;
};

// True with --quick, and for settings that cannot run yet.
bool by_formula(const EstimateOptions& options, const ResolvedRequest& resolved) {
  return options.quick || !cannot_run(resolved.settings).empty();
}

// A trace and a page need a dry run.
void refuse_trace(const EstimateOptions& options, const ResolvedRequest& resolved) {
  const std::string option = options.trace ? "--trace" : "--html";
  throw UsageError(expectation(
      option, "a dry run for " + option,
      options.quick ? "--quick" : join(cannot_run(resolved.settings), ", "), "leaving that out"));
}

// --quick answers in milliseconds, so it computes advice only on request.
bool wants_advice(const EstimateOptions& options, const answer::Answer& answer) {
  return options.advice || (!options.quick && answer.does_not_fit());
}

ExitCode run_by_formula(const EstimateOptions& options, const ResolvedRequest& resolved) {
  if (options.trace || options.html) refuse_trace(options, resolved);
  const auto model = model::model_named(resolved.model);
  answer::Answer answer = answer::by_formula(model, resolved.settings, resolved.cards);
  if (!resolved.decision.empty()) answer.notes.push_back(resolved.decision);
  if (!options.quick)
    answer.notes.push_back("by formula, because Headroom cannot run this yet: " +
                           join(cannot_run(resolved.settings), ", "));
  if (options.quick) answer.rule = plan::quick_estimate(model.config, resolved.settings);
  if (options.request.allocator || options.request.rules != "cuda")
    answer.notes.push_back(
        "--allocator and --rules change nothing: the formula has no allocator and assumes CUDA's "
        "kernels.");
  if (options.techniques)
    answer.techniques =
        answer::techniques_by_formula(model.config, resolved.settings, resolved.cards);
  if (wants_advice(options, answer))
    answer.advice = answer::advice_by_formula(model.config, resolved.settings, resolved.cards);
  return print_answer(answer, options.request.json);
}

ExitCode estimate_python(const EstimateOptions& options) {
  if (options.quick || options.techniques)
    throw UsageError(expectation("estimate", "the name of a model for --quick, --techniques",
                                 options.request.model, "leaving these out"));
  Json request = python_request(options.request, {"--batch", "--mode"});
  const answer::EventFiles files{.trace = options.trace.value_or(""),
                                 .html = options.html.value_or("")};
  request["keep_events"] = files.any();
  const PythonStep step("estimate", request);
  if (step.exit_code() != kOk) return step.exit_code();
  const answer::Answer answer = step.answer();
  if (files.any()) answer::write_files(files, answer, step.events_of(answer));
  tell_of_outputs("estimate", {files.trace, files.html});
  std::vector<rehearse::TriedAdvice> tried;
  if (wants_advice(options, answer)) tried = advice_for(request, answer);
  if (options.request.json) {
    Json document = to_json(answer);
    document["advice"] = to_json(tried, answer.method).at("advice");
    print(to_line(document) + "\n");
  } else {
    print(estimate_text(answer, standard_output(), tried_text(tried, standard_output())));
  }
  return answer.does_not_fit() ? kDoesNotFit : kOk;
}

ExitCode run_estimate(const EstimateOptions& options) {
  check_outputs("estimate", {options.trace.value_or(""), options.html.value_or("")},
                files_of(options.request.model));
  if (is_python_step(options.request.model)) return estimate_python(options);
  const ResolvedRequest resolved(options.request);
  if (by_formula(options, resolved)) return run_by_formula(options, resolved);
  Json request = to_json(options.request, resolved);
  request["trace"] = or_null(options.trace);
  request["html"] = or_null(options.html);
  request["advice"] = options.advice;
  request["techniques"] = options.techniques;
  become_engine({"estimate", to_line(request)});
}

}  // namespace

void add_estimate(Registry& registry) {
  auto [command, options] = registry.add(
      &run_estimate, "estimate", "Predict the memory of a training step: will it fit?",
      "  headroom estimate llama-3.1-8b --batch 2 --seq 2048 --dtype bfloat16 --gpus \"RTX 4090\"\n"
      "  headroom estimate runs/my-model/config.json --batch 16 --checkpointing full\n"
      "  headroom estimate 7B --seq 4096 --lora-rank 16 --quantize 4bit --gpus sim:1x24GiB --json\n"
      "  headroom estimate gpt2-xl --batch 8 --gpus \"RTX 4090\" --techniques\n"
      "  headroom estimate gpt2 --batch 8 --gpus \"RTX 4090\" --html gpt2.html\n"
      "  headroom estimate llama-2-13b@40GiB,llama-2-7b --policy variant --gpus all\n"
      "  headroom estimate train.py:make_step --gpus \"RTX 4090\"\n\n"
      "train.py:make_step is a function of your own Python program. It returns (model, step) or\n"
      "(module, example inputs), which run on a simulated card, without data. --batch N calls\n"
      "make_step(N); --mode inference runs (module, example inputs) forward only.\n\n"
      "Headroom cannot run some settings yet, and answers by formula: --world, --zero, "
      "--offload\n"
      "(except activations), --optimizer-in-backward and --mode generate.\n"
      "Exit: 0 it fits, or no card was given, 2 it does not fit, 64 wrong usage,\n"
      "65 a wrong configuration, 69 no such GPU.");
  options->request.add_to(command);
  command->add_flag("--quick", options->quick,
                    "Answer by formula in milliseconds, without a dry run");
  command->add_flag("--techniques", options->techniques,
                    "List every technique that saves memory for this model, by formula");
  command->add_flag("--advice", options->advice,
                    "Show the three best techniques that save memory, even if it fits; for a "
                    "Python function, try four changes");
  command->add_option("--trace", options->trace,
                      "Write the events of the dry run to this file, for `headroom trace`");
  command->add_option("--html", options->html,
                      "Write a page that shows the step's memory over time to this file");
}

}  // namespace headroom::cli

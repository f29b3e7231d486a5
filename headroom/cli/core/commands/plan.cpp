// `headroom plan`: how a model trains on these cards. With prices that are known from earlier plans
// it answers at once; else headroom-engine makes dry runs of stages.
#include <nlohmann/json.hpp>
#include <string>

#include "headroom/cli/core/planning/plan_options.h"
#include "headroom/cli/core/planning/planner.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/start_engine.h"
#include "headroom/cli/core/view/plan_view.h"

namespace headroom::cli {
namespace {

struct Options {
  std::string model;
  PlanOptions plan;
  bool json = false;
};

ExitCode run_plan(const Options& options) {
  const PlanQuestion question = options.plan.question(options.model);
  try {
    return print_plan(question, plan_for(question, none_can_be_made()), options.json);
  } catch (const NotPriced&) {
  }
  become_engine({"plan", to_line({{"question", to_json(question)}, {"json", options.json}})});
}

}  // namespace

void add_plan(Registry& registry) {
  auto [command, options] = registry.add(
      &run_plan, "plan", "Find the fastest way to train a model on these cards",
      "  headroom plan 7B --batch 32 --seq 1024 --dtype bfloat16 --gpus sim:8x31.36GiB\n"
      "  headroom plan llama-3.1-8b --tune any --gpus \"RTX 4090\"\n"
      "  headroom plan 13B --dtype bfloat16 --gpus all --json\n"
      "  headroom plan gpt2 --gpus sim:1x24GiB,1x80GiB --micro-batch 4\n"
      "  headroom plan 7B --dtype bfloat16 --gpus sim:8x31.36GiB --policy strategy\n\n"
      "Replicas of the model, stages of it, or both; which layers lie on which card; the rows of "
      "a\n"
      "forward pass; and which stages compute activations again. What you give is fixed. It "
      "prints\n"
      "the `headroom train` command that runs the plan. Every plan that it shows was run without\n"
      "data (a dry run), so its memory is known to the byte; times are estimates.\n"
      "Exit: 0 there is a plan, 2 nothing fits, 64 wrong usage, 65 a wrong configuration,\n"
      "69 no such GPU.");
  command
      ->add_option("model", options->model,
                   "A config.json or its folder, a model's name, or a size (7B)")
      ->required();
  options->plan.add_to(command);
  command->add_flag("--json", options->json, "Print one JSON document (sizes in bytes)");
}

}  // namespace headroom::cli

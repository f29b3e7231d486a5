// `headroom profile`: which operators and modules allocate? Parses the command line;
// headroom-engine runs the step on a simulated card.
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/model_request.h"
#include "headroom/cli/core/output_files.h"
#include "headroom/cli/core/python_step.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/start_engine.h"
#include "headroom/cli/core/view/profile_view.h"
#include "headroom/cli/core/whole_number.h"
#include "headroom/model/can_run.h"

namespace headroom::cli {
namespace {

struct ProfileOptions {
  ModelRequest request;
  std::string sort_by = "self_bytes", group_by = "operator";
  std::int64_t row_limit = 10;
  std::optional<std::string> trace;
};

void check_one_kind(const Json& cards) {
  for (const Json& card : cards)
    if (card != cards.front())
      throw UsageError(expectation("--gpus", "one card, or several of one kind",
                                   "several kinds of cards", "one profile for each"));
}

Json with_view(Json request, const ProfileOptions& options) {
  check_one_kind(request.at("cards"));
  request["sort_by"] = options.sort_by;
  request["group_by"] = options.group_by;
  request["row_limit"] = options.row_limit;
  request["trace"] = options.trace ? Json(*options.trace) : Json();
  return request;
}

ExitCode profile_python(const ProfileOptions& options) {
  Json request = python_request(options.request, {"--batch", "--mode", "--steps"});
  request["steps"] = options.request.settings.settings().steps;
  request["table_width"] = profile_width();
  const PythonStep step("profile", with_view(std::move(request), options));
  if (step.exit_code() != kOk) return step.exit_code();
  tell_of_outputs("profile", {options.trace.value_or("")});
  if (options.request.json) return print_profile_json(step.profile(), step.found().at("profile"));
  return print_profile_text(step.profile(), step.found().at("table").get<std::string>());
}

ExitCode run_profile(const ProfileOptions& options) {
  check_outputs("profile", {options.trace.value_or("")}, files_of(options.request.model));
  if (is_python_step(options.request.model)) return profile_python(options);
  const ResolvedRequest resolved(options.request);
  if (const auto lacking = cannot_run(resolved.settings); !lacking.empty())
    throw UsageError(expectation("profile", "settings that Headroom can run", join(lacking, ", "),
                                 "leaving that out"));
  become_engine({"profile", to_line(with_view(to_json(options.request, resolved), options))});
}

}  // namespace

void add_profile(Registry& registry) {
  auto [command, options] = registry.add(
      &run_profile, "profile", "Show which operators and modules of a training step allocate",
      "  headroom profile gpt2 --gpus \"RTX 4090\"\n"
      "  headroom profile llama-3.2-1b --dtype bfloat16 --group-by module --row-limit 20\n"
      "  headroom profile resnet50 --batch 32 --sort-by device_s --group-by shape\n"
      "  headroom profile gpt2 --trace profile.json --json\n"
      "  headroom profile train.py:make_step --gpus \"RTX 4090\"\n\n"
      "The step runs on a simulated card, without data: bytes are exact, device time is the cost\n"
      "model's, and CPU time is that of the simulation. For a real run on a GPU or the CPU use\n"
      "headroom.profile() in Python, or profile::Profiler in C++.\n"
      "Sort by self_bytes, total_bytes, self_kept_bytes, cpu_bytes, self_cpu_bytes, device_s,\n"
      "self_device_s, cpu_s, self_cpu_s, calls or name.");
  options->request.add_to(command);
  command->add_option("--sort-by", options->sort_by, "Figure to sort by (default self_bytes)");
  command->add_option("--group-by", options->group_by, "Rows: operator (default), shape or module")
      ->check(CLI::IsMember({"operator", "shape", "module"}));
  command->add_option("--row-limit", options->row_limit, "Rows to show (default 10; 0: all)")
      ->check(whole_number(0, std::int64_t{1} << 24));
  command->add_option("--trace", options->trace,
                      "Write a Chrome trace with memory counters to this file");
}

}  // namespace headroom::cli

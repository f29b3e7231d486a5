// `headroom fit`: finds the largest batch, or the longest sequence, that fits a card.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/base/amount.h"
#include "headroom/base/error.h"
#include "headroom/cli/core/model_request.h"
#include "headroom/cli/core/python_step.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/start_engine.h"
#include "headroom/cli/core/view/fit_view.h"
#include "headroom/cli/core/whole_number.h"

namespace headroom::cli {
namespace {

struct FitOptions {
  ModelRequest request;
  std::string over = "batch", margin = "0.1";
  std::int64_t at_least = 1;
  std::optional<std::int64_t> at_most;
};

Json margin_from(const std::string& text) {
  const ShareOrBytes margin = parse_share_or_amount(text, "--margin");
  if (margin.share) return {{"share", *margin.share}};
  return {{"bytes", margin.bytes.count}};
}

void check_cards(const Json& request) {
  if (request.at("cards").empty())
    throw UsageError(
        expectation("--gpus", "a card to fit into", "none", "--gpus \"RTX 4090\", or sim:1x24GiB"));
}

ExitCode fit_python(const FitOptions& options) {
  if (options.over != "batch")
    throw UsageError(expectation("--over", "batch for a Python function", options.over));
  Json request = python_request(options.request, {"--mode"});
  check_cards(request);
  request["at_least"] = options.at_least;
  request["at_most"] = options.at_most ? Json(*options.at_most) : Json();
  request["margin"] = margin_from(options.margin);
  const PythonStep step("fit", request);
  if (step.exit_code() != kOk) return step.exit_code();
  return print_fit(step.fit(), options.request.json);
}

// The searched size cannot also be given.
void refuse_answer(const FitOptions& options) {
  const std::string answer = "--" + options.over;
  const std::vector<std::string> given = options.request.settings.given();
  if (std::find(given.begin(), given.end(), answer) != given.end())
    throw UsageError("fit", answer + " has no meaning while fit searches for the largest; try " +
                                "--max-batch for an upper bound, or --over " +
                                (options.over == "batch" ? "seq" : "batch"));
}

ExitCode run_fit(const FitOptions& options) {
  if (is_python_step(options.request.model)) return fit_python(options);
  refuse_answer(options);
  const ResolvedRequest resolved(options.request);
  Json request = to_json(options.request, resolved);
  check_cards(request);
  request["over"] = options.over;
  request["at_least"] = options.at_least;
  request["at_most"] = options.at_most ? Json(*options.at_most) : Json();
  request["margin"] = margin_from(options.margin);
  become_engine({"fit", to_line(request)});
}

}  // namespace

void add_fit(Registry& registry) {
  auto [command, options] = registry.add(
      &run_fit, "fit", "Find the largest batch, or the longest sequence, that fits a card",
      "  headroom fit llama-3.2-1b --seq 2048 --dtype bfloat16 --gpus \"RTX 4090\"\n"
      "  headroom fit runs/my-model --over seq --batch 4 --gpus sim:1x80GiB\n"
      "  headroom fit resnet50 --gpus sim:1x8GiB --margin 1GiB --json\n"
      "  headroom fit train.py:make_step --gpus \"RTX 4090\"\n\n"
      "train.py:make_step is a function of your own Python program that takes the batch size.\n"
      "fit makes at most six dry runs, among them the answer and the next larger size.");
  options->request.add_to(command);
  command->add_option("--over", options->over, "Size to search for: batch or seq")
      ->check(CLI::IsMember({"batch", "seq"}));
  command
      ->add_option("--min-batch", options->at_least,
                   "Smallest useful batch or sequence (default 1)")
      ->check(whole_number(1, std::int64_t{1} << 24));
  command->add_option("--max-batch", options->at_most, "Largest batch or sequence to try")
      ->check(whole_number(1, std::int64_t{1} << 24));
  command->add_option("--margin", options->margin,
                      "Memory that the recommended size leaves free: 0.1, 10%, 2GiB (default 0.1)");
}

}  // namespace headroom::cli

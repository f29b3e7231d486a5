#include "tests/gpu_check/run_checks.h"

#include <cstdlib>

#include "headroom/base/error.h"
#include "headroom/base/process.h"
#include "headroom/cli/core/terminal.h"

namespace headroom::gpu_check {
namespace {

std::string own_path() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

Outcome outcome_of(const CommandResult& result, Seconds limit) {
  if (result.timed_out)
    return failed("stopped when the " + duration_text(limit) + " for all checks were over");
  if (result.exit_code != 0)
    return failed("its process ended with exit code " + std::to_string(result.exit_code));
  try {
    return outcome_from_json(parse_json(result.out, "the outcome of a check"));
  } catch (const InputError& error) {
    return failed("its outcome cannot be read: " + error.sentence());
  }
}

Outcome in_child(const Check& check, const Place& place, Seconds left, Seconds limit) {
  if (left.count() <= 0)
    return failed("no time left of the " + duration_text(limit) + " for all checks");
  // LibTorch's CUDA part takes a second to load; beside it no card can be simulated.
  const bool needs_cuda = check.needs == Needs::card && !place.is_simulated();
  const std::vector<std::string> variables =
      needs_cuda ? std::vector<std::string>{} : std::vector<std::string>{"HEADROOM_CUDA=off"};
  return outcome_of(
      run_command({own_path(), "--child", check.name, "--gpu", place.text()}, left, variables),
      limit);
}

}  // namespace

std::vector<Done> run_checks(const std::vector<const Check*>& checks, const Place& place,
                             Seconds limit, const std::function<void(const Check&)>& begins,
                             const std::function<void(const Done&)>& ends) {
  const Clock::time_point start = Clock::now();
  const auto passed_time = [&] { return Seconds(Clock::now() - start); };
  std::vector<Done> all;
  const Outcome* without_card = nullptr;  // of the first check that missed it
  all.reserve(checks.size());             // so that the pointer stays valid
  for (const Check* check : checks) {
    begins(*check);
    const Seconds before = passed_time();
    Done done{.check = check};
    done.outcome = without_card != nullptr && check->needs == Needs::card
                       ? *without_card
                       : in_child(*check, place, limit - before, limit);
    done.took = passed_time() - before;
    ends(done);
    all.push_back(std::move(done));
    if (all.back().outcome.no_card && check->needs == Needs::card)
      without_card = &all.back().outcome;
  }
  return all;
}

void run_as_child(const Check& check, Place& place) {
  cli::print(to_line(to_json(outcome_of(check, place))) + "\n");
  std::_Exit(EXIT_SUCCESS);
}

}  // namespace headroom::gpu_check

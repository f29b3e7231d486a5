#include "tests/gpu_check/check.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "headroom/base/error.h"
#include "headroom/base/text.h"

namespace headroom::gpu_check {

Outcome passed(std::string words, Json figures) {
  return {Outcome::State::passed, std::move(words), std::move(figures)};
}
Outcome failed(std::string words, Json figures) {
  return {Outcome::State::failed, std::move(words), std::move(figures)};
}
Outcome not_run(std::string reason, Json figures) {
  return {Outcome::State::not_run, std::move(reason), std::move(figures)};
}

Outcome judged(const std::vector<std::string>& complaints, std::string words, Json figures) {
  if (complaints.empty()) return passed(std::move(words), std::move(figures));
  constexpr std::size_t kMost = 5;
  const auto end =
      complaints.begin() + static_cast<std::ptrdiff_t>(std::min(complaints.size(), kMost));
  std::string told = join(std::vector(complaints.begin(), end), "; ");
  if (complaints.size() > kMost)
    told += "; and " + std::to_string(complaints.size() - kMost) + " more";
  return failed(std::move(told), std::move(figures));
}

const char* to_string(Outcome::State state) {
  if (state == Outcome::State::passed) return "ok";
  return state == Outcome::State::failed ? "failed" : "not run here";
}

Json to_json(const Outcome& outcome) {
  return {{"state", to_string(outcome.state)},
          {"words", outcome.words},
          {"no_card", outcome.no_card},
          {"figures", outcome.figures}};
}

Outcome outcome_from_json(const Json& json) {
  try {
    const std::string state = json.at("state");
    return {.state = state == "ok"       ? Outcome::State::passed
                     : state == "failed" ? Outcome::State::failed
                                         : Outcome::State::not_run,
            .words = json.at("words"),
            .figures = json.at("figures"),
            .no_card = json.at("no_card")};
  } catch (const Json::exception& error) {
    throw InputError("the outcome of a check", error.what());
  }
}

Outcome outcome_of(const Check& check, Place& place) {
  try {
    return check.run(place);
  } catch (const NoCardError& error) {
    Outcome outcome = not_run(error.sentence());
    outcome.no_card = true;
    return outcome;
  } catch (const c10::Error& error) {
    return failed(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return failed(error.what());
  }
}

const std::vector<Check>& all_checks() {
  static const std::vector<Check> all = [] {
    std::vector<Check> checks{
        {"texts", "texts of failures, each judged as memory or not", Needs::nothing, check_texts},
        {"driver", "the driver's library lists cards, memory and processes", Needs::driver,
         check_driver},
        {"library", "Headroom's CUDA part loads, and its figures follow a tensor", Needs::card,
         check_library},
        {"commit", "an optimizer's commit() takes no memory of the card", Needs::card,
         check_commit},
        {"kernels", "Headroom's own operators give the bits of the CPU's; GB/s beside a copy",
         Needs::card, check_kernels},
        {"states", "optimizer states in few bits and stochastic rounding equal the CPU's",
         Needs::card, check_states},
        {"out_of_memory", "a step refused at each limit changes nothing and can be repeated",
         Needs::card, check_out_of_memory},
        {"refusals", "refused requests, cuBLAS's workspace among them, are judged as memory",
         Needs::card, check_refusals},
        {"full_card", "cuBLAS without room for its handle is judged as memory", Needs::card,
         check_full_card},
        {"broken_context", "a failed assertion in a kernel is not judged as memory", Needs::card,
         check_broken_context},
        {"offload", "activation offload on side streams gives equal gradients", Needs::card,
         check_offload},
        {"spill", "steps with less memory than they need, what is needed later on the host",
         Needs::card, check_spill},
        {"quantised", "a step over 4-bit weights takes what is predicted, with right gradients",
         Needs::card, check_quantised},
        {"train_step", "a training step commits under ever less memory, to the same bits",
         Needs::card, check_train_step},
        {"team.replicas", "two cards train two replicas, survive, and end as one card does",
         Needs::card, [](Place& place) { return check_team(place, 1); }},
        {"team.stages", "two cards have half a model each, survive, and end as one card does",
         Needs::card, [](Place& place) { return check_team(place, 2); }}};
    for (Check& check : prediction_checks()) checks.push_back(std::move(check));
    return checks;
  }();
  return all;
}

}  // namespace headroom::gpu_check

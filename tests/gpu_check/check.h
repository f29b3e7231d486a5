// What a check is, and what it reports.
//
//   const Check check{"offload", "gradients with activation offload", Needs::card, check_offload};
//   Place place("cuda:0");
//   const Outcome outcome = check.run(place);
//
// A check is written over a c10::Device: the same code runs on a real card and on a simulated one
// that computes, which is how it is tested without a GPU. Each check runs in a process of its own
// (main.cpp), because some leave CUDA broken, and others need an allocator that was not used
// before.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "headroom/base/json.h"
#include "tests/gpu_check/place.h"

namespace headroom::gpu_check {

struct Outcome {
  enum class State { passed, failed, not_run };
  State state = State::passed;
  std::string words;     // the figures in one line, or the reason
  Json figures = {};     // all of them, by name; sizes are bytes
  bool no_card = false;  // not run because no card can be used
};

[[nodiscard]] Outcome passed(std::string words, Json figures = Json::object());
[[nodiscard]] Outcome failed(std::string words, Json figures = Json::object());
[[nodiscard]] Outcome not_run(std::string reason, Json figures = Json::object());
// Passed if there are no complaints.
[[nodiscard]] Outcome judged(const std::vector<std::string>& complaints, std::string words,
                             Json figures);

[[nodiscard]] Json to_json(const Outcome& outcome);
// The reverse, for the outcome of another process. Throws InputError.
[[nodiscard]] Outcome outcome_from_json(const Json& json);
[[nodiscard]] const char* to_string(Outcome::State state);  // "ok", "failed", "not run here"

enum class Needs {
  nothing,
  driver,  // NVML; a fake one does (tests/fake_nvml)
  card,    // a card to compute on
};

struct Check {
  std::string name, about;
  Needs needs = Needs::card;
  std::function<Outcome(Place&)> run;
};

// In the order in which they run.
[[nodiscard]] const std::vector<Check>& all_checks();

// Runs the check; an exception becomes the outcome.
[[nodiscard]] Outcome outcome_of(const Check& check, Place& place);

// ---- The checks, each in the file of its name

[[nodiscard]] Outcome check_texts(Place& place);
[[nodiscard]] Outcome check_driver(Place& place);
[[nodiscard]] Outcome check_library(Place& place);
[[nodiscard]] Outcome check_commit(Place& place);
[[nodiscard]] Outcome check_kernels(Place& place);
[[nodiscard]] Outcome check_states(Place& place);
[[nodiscard]] Outcome check_out_of_memory(Place& place);
[[nodiscard]] Outcome check_refusals(Place& place);
[[nodiscard]] Outcome check_full_card(Place& place);
[[nodiscard]] Outcome check_broken_context(Place& place);
[[nodiscard]] Outcome check_offload(Place& place);
[[nodiscard]] Outcome check_spill(Place& place);
[[nodiscard]] Outcome check_quantised(Place& place);
[[nodiscard]] Outcome check_train_step(Place& place);
[[nodiscard]] Outcome check_team(Place& place, int stages);
// One for each model: prediction.gpt2_fp32, ...
[[nodiscard]] std::vector<Check> prediction_checks();

}  // namespace headroom::gpu_check

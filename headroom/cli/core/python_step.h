// A training step written in Python: `train.py:make_step` in place of a model's name. A Python runs
// it on simulated cards and hands over figures (docs/formats/python-step.md); the answer is made
// and printed here, like that of a model.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "headroom/answer/fit.h"
#include "headroom/answer/profile.h"
#include "headroom/cli/core/exit_code.h"
#include "headroom/cli/core/model_request.h"
#include "headroom/rehearse/advice.h"

namespace headroom::cli {

// True for "train.py:make_step" and "src/train.py:Setup.step", and for "train.py", for which the
// Python side reports the missing function.
[[nodiscard]] bool is_python_step(const std::string& model);

// The files that the name of a model may mean: itself, and "train.py" of "train.py:make_step".
[[nodiscard]] std::vector<std::string> files_of(const std::string& model);

// The request to the Python side: the function, the cards and the options. `known` lists the model
// settings that the command accepts: "--batch" is an argument of the function, "--mode" selects
// training or inference. Throws UsageError for others (--dtype): there the function decides.
[[nodiscard]] Json python_request(const ModelRequest& request,
                                  const std::vector<std::string>& known);

class PythonStep {
 public:
  // Runs `python -m headroom.command what`, whose output goes to standard error. Throws
  // UnavailableError if no Python has the package. `quiet`: without the program's own output.
  PythonStep(const std::string& what, Json request, bool quiet = false);

  // kOk if there are figures; else Python has said why not.
  [[nodiscard]] ExitCode exit_code() const { return exit_code_; }

  // The answer of `estimate`, with the trace of the card that decides.
  [[nodiscard]] answer::Answer answer() const;
  [[nodiscard]] std::filesystem::path events_of(const answer::Answer& answer) const;
  [[nodiscard]] answer::Fit fit() const;
  [[nodiscard]] answer::ProfileAnswer profile() const;
  [[nodiscard]] const Json& found() const { return found_; }

 private:
  [[nodiscard]] std::vector<gpu::SimulatedCard> cards() const;

  Json request_, found_;
  rehearse::Folder folder_;
  ExitCode exit_code_ = kOk;
};

// Tries what would help a step that needs this: each change of rehearse/advice.h that can be made
// to it from outside, in one more run.
[[nodiscard]] std::vector<rehearse::TriedAdvice> advice_for(const Json& request,
                                                            const answer::Answer& now);

}  // namespace headroom::cli

// A training step that is written in Python: `train.py:make_step` where a model's name may stand.
#pragma once

#include <string>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/cli/core/model_request.h"

namespace headroom::cli {

// "train.py:make_step", "src/train.py:Setup.step"; "train.py", of which Python says what it lacks.
[[nodiscard]] bool is_python_step(const std::string& model);

// What the Python side is asked: the function, the cards, how. Of the model's settings the command
// takes those in `known`: "--batch" is an argument of the function, "--mode" says what is run.
// Throws UsageError for others (--dtype): there the function decides.
[[nodiscard]] Json python_request(const ModelRequest& request,
                                  const std::vector<std::string>& known);

// This process becomes `python -m headroom.command what request`: what it prints and how it ends is
// what the user sees. Throws UnavailableError if no Python has the package.
[[noreturn]] void become_python(const std::string& what, const Json& request);

}  // namespace headroom::cli

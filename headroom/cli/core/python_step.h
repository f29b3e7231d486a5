// A training step written in Python: `train.py:make_step` in place of a model's name.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/cli/core/model_request.h"

namespace headroom::cli {

// The folder of this headroom's Python package. Throws UnavailableError if there is none.
[[nodiscard]] std::filesystem::path python_package();

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

// Replaces this process by `python -m headroom.command what request`, so the user sees its output
// and exit code. Throws UnavailableError if no Python has the package.
[[noreturn]] void become_python(const std::string& what, const Json& request);

}  // namespace headroom::cli

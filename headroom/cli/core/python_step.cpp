#include "headroom/cli/core/python_step.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/process.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/start_engine.h"
#include "headroom/gpu/simulated_json.h"
#include "headroom/machine/cards_to_fill.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

struct Candidate {
  std::string python, where;
};
// HEADROOM_PYTHON alone if set; else the active environment's, the one beside this program, and the
// first in PATH.
std::vector<Candidate> pythons() {
  if (const auto named = environment("HEADROOM_PYTHON"); named && !named->empty())
    return {{*named, "HEADROOM_PYTHON"}};
  std::vector<Candidate> all;
  if (const auto venv = environment("VIRTUAL_ENV"))
    all.push_back({*venv + "/bin/python3", "VIRTUAL_ENV"});
  all.push_back({(own_folder() / "python3").string(), "beside this program"});
  all.push_back({"python3", "in PATH"});
  return all;
}

[[noreturn]] void refuse_without_python(const std::string& wanted) {
  std::vector<std::string> looked_at;
  for (const auto& [python, where] : pythons()) looked_at.push_back(python + " (" + where + ")");
  throw UnavailableError(
      expectation("headroom", wanted + " as one of " + join(looked_at, ", "), "none",
                  "pip install of the wheel into one, or HEADROOM_PYTHON=.../python3"));
}

// Finds a package that was built but not installed: build/python beside build/bin.
void find_built_package() {
  std::error_code error;
  const fs::path built = own_folder() / "../python";
  if (!fs::exists(built / "headroom/__init__.py", error)) return;
  const std::string before = environment("PYTHONPATH").value_or("");
  ::setenv(
      "PYTHONPATH",
      (fs::weakly_canonical(built, error).string() + (before.empty() ? "" : ":" + before)).c_str(),
      1);
}

bool has_package(const std::string& python) {
  constexpr const char* kAsk =
      "import importlib.util as u, sys; "
      "sys.exit(not (u.find_spec('torch') and u.find_spec('headroom')))";
  return run_command({python, "-c", kAsk}, Seconds(20)).exit_code == 0;
}

}  // namespace

std::filesystem::path python_package() {
  std::error_code error;
  const fs::path built = own_folder() / "../python/headroom";
  if (fs::exists(built / "__init__.py", error)) return fs::weakly_canonical(built, error);
  constexpr const char* kWhere =
      "import importlib.util as u; print(u.find_spec('headroom').submodule_search_locations[0])";
  for (const auto& [python, where] : pythons()) {
    const CommandResult answer = run_command({python, "-c", kWhere}, Seconds(20));
    if (answer.exit_code == 0) return std::string(trim(answer.out));
  }
  refuse_without_python("a Python with headroom");
}

bool is_python_step(const std::string& model) {
  if (model.ends_with(".py"))
    return true;  // no function given: the Python side lists those of the file
  const std::size_t colon = model.rfind(".py:");
  return colon != std::string::npos && colon > 0 && model.size() > colon + 4;
}

std::vector<std::string> files_of(const std::string& model) {
  return {model, model.substr(0, model.rfind(':'))};
}

Json python_request(const ModelRequest& request, const std::vector<std::string>& known) {
  const std::vector<std::string> given = request.settings.given();
  const auto is_in = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const std::string& name : given)
    if (!is_in(known, name))
      throw UsageError(
          expectation(name, "the name of a model for " + name, request.model,
                      "leaving it out: what " + request.model + " returns is what runs"));
  const model::Settings settings = request.settings.settings();
  if (settings.mode == model::Mode::generate)
    throw UsageError(expectation("--mode", "train or inference for a Python function", "generate"));
  Json json = {{"function", request.model},
               {"cards", Json::array()},
               {"batch", is_in(given, "--batch") ? Json(settings.batch) : Json()},
               {"mode", is_in(given, "--mode") ? Json(to_string(settings.mode)) : Json()},
               {"rules", request.rules},
               {"allocator", request.allocator ? Json(*request.allocator) : Json()},
               {"json", request.json}};
  for (const auto& card : machine::cards_to_fill(request.gpus))
    json["cards"].push_back(gpu::to_json(card));
  return json;
}

void become_python(const std::string& what, const Json& request) {
  find_built_package();
  for (const auto& [python, where] : pythons()) {
    if (!has_package(python)) continue;
    std::vector<std::string> words{python, "-m", "headroom.command", what, to_line(request)};
    ::execvp(words[0].c_str(), pointers_to(words).data());
    throw UnavailableError("headroom", python + " cannot be started: " + std::strerror(errno));
  }
  refuse_without_python("a Python with headroom and torch " + wanted_torch());
}

}  // namespace headroom::cli

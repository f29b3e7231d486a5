#include "headroom/rehearse/python.h"

#include <optional>

#include "headroom/allocator/settings.h"
#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/process.h"
#include "headroom/base/text.h"

namespace headroom::rehearse {
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

// The package of a build, which is not installed: build/python beside build/bin.
std::optional<fs::path> built_package() {
  std::error_code error;
  const fs::path folder = own_folder() / "../python/headroom";
  if (!fs::exists(folder / "__init__.py", error)) return {};
  return fs::weakly_canonical(folder, error);
}

std::vector<std::string> path_to(const std::optional<fs::path>& package) {
  if (!package) return {};
  const std::string before = environment("PYTHONPATH").value_or("");
  return {"PYTHONPATH=" + package->parent_path().string() + (before.empty() ? "" : ":" + before)};
}

bool has_package(const Python& python) {
  constexpr const char* kAsk =
      "import importlib.util as u, sys; "
      "sys.exit(not (u.find_spec('torch') and u.find_spec('headroom')))";
  return run_command({python.program, "-c", kAsk}, Seconds(20), python.environment).exit_code == 0;
}

}  // namespace

fs::path python_package() {
  if (const auto built = built_package()) return *built;
  constexpr const char* kWhere =
      "import importlib.util as u; print(u.find_spec('headroom').submodule_search_locations[0])";
  for (const auto& [python, where] : pythons()) {
    const CommandResult answer = run_command({python, "-c", kWhere}, Seconds(20));
    if (answer.exit_code == 0) return std::string(trim(answer.out));
  }
  refuse_without_python("a Python with headroom");
}

Python python_with_package() {
  for (const auto& [program, where] : pythons())
    if (const Python python{program, path_to(built_package())}; has_package(python)) return python;
  refuse_without_python("a Python with headroom and torch " +
                        std::string(allocator::default_version().torch));
}

}  // namespace headroom::rehearse

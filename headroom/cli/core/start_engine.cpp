#include "headroom/cli/core/start_engine.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/text.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

// Parses `name = 'value'` in version.py; std::nullopt for None.
std::optional<std::string> python_value(const std::string& source, const std::string& name) {
  for (const std::string_view line : split(source, '\n')) {
    const bool assigns = line.starts_with(name) && (line.size() > name.size()) &&
                         (line[name.size()] == ' ' || line[name.size()] == ':');
    const std::size_t open = line.find('\''), close = line.rfind('\'');
    if (assigns && open != std::string_view::npos && close > open)
      return std::string(line.substr(open + 1, close - open - 1));
  }
  return {};
}

std::optional<TorchWheel> wheel_in(const fs::path& folder) {
  const auto source = read_file(folder / "version.py");
  std::error_code error;
  if (!source || !fs::exists(folder / "lib/libtorch_cpu.so", error)) return {};
  return TorchWheel{.folder = fs::weakly_canonical(folder, error),
                    .version = python_value(*source, "__version__").value_or("?"),
                    .cuda = python_value(*source, "cuda"),
                    .hip = python_value(*source, "hip")};
}

std::optional<TorchWheel> wheel_in_environment(const fs::path& venv) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(venv / "lib", error))
    if (entry.path().filename().string().starts_with("python3"))
      if (auto wheel = wheel_in(entry.path() / "site-packages/torch")) return wheel;
  return {};
}

std::optional<TorchWheel> wheel_of_python() {
  constexpr const char* kAsk =
      "import importlib.util as u; s = u.find_spec('torch'); "
      "print(s.submodule_search_locations[0] if s else '')";
  const CommandResult result = run_command({"python3", "-c", kAsk}, Seconds(3));
  const std::string_view folder = trim(result.out);
  if (result.exit_code != 0 || folder.empty()) return {};
  return wheel_in(fs::path(folder));
}

std::string library_path(const TorchWheel& torch) {
  const std::string before = environment("LD_LIBRARY_PATH").value_or("");
  return (torch.folder / "lib").string() + (before.empty() ? "" : ":" + before);
}

}  // namespace

std::optional<TorchWheel> find_torch() {
  if (const auto named = environment("HEADROOM_TORCH"); named && !named->empty())
    return wheel_in(*named);
  if (const auto venv = environment("VIRTUAL_ENV"))
    if (auto wheel = wheel_in_environment(*venv)) return wheel;
  // In a checkout: build/bin/headroom or build/asan/bin/headroom.
  for (const char* up : {"../../.venv", "../../../.venv"})
    if (auto wheel = wheel_in_environment(own_folder() / up)) return wheel;
  // Installed with a wheel: bin/headroom of an environment.
  if (auto wheel = wheel_in_environment(own_folder() / "..")) return wheel;
  return wheel_of_python();
}

std::optional<fs::path> find_engine() {
  const fs::path engine = own_folder() / "headroom-engine";
  std::error_code error;
  if (!fs::exists(engine, error)) return {};
  return engine;
}

std::string wanted_torch() {
  return std::string(allocator::default_version().torch);
}

std::string install_torch() {
  return "pip install torch~=" + wanted_torch() + ".0";
}

std::string engine_allocator_settings(std::optional<Bytes> card_total) {
  const auto now = allocator::effective_settings(
      [](const std::string& name) { return environment(name.c_str()); });
  return allocator::merged_environment_value(
      now.source.text, allocator::recommend(now.source.text, card_total).settings);
}

EngineCommand engine_command(const std::vector<std::string>& arguments) {
  const auto engine = find_engine();
  if (!engine)
    throw UnavailableError(expectation("headroom", "headroom-engine beside this program", "none",
                                       "--quick, which needs no LibTorch"));
  const auto torch = find_torch();
  if (!torch)
    throw UnavailableError(
        expectation("headroom", "LibTorch " + wanted_torch(), "none",
                    install_torch() + ", or HEADROOM_TORCH=.../site-packages/torch"));
  EngineCommand command{{engine->string()}, {"LD_LIBRARY_PATH=" + library_path(*torch)}};
  command.words.insert(command.words.end(), arguments.begin(), arguments.end());
  return command;
}

void become_engine(const std::vector<std::string>& arguments) {
  EngineCommand command = engine_command(arguments);
  std::vector<std::string> environment = environment_with(command.environment);
  const std::vector<char*> argv = pointers_to(command.words);
  ::execve(argv[0], argv.data(), pointers_to(environment).data());
  throw UnavailableError("headroom",
                         command.words[0] + " cannot be started: " + std::strerror(errno));
}

CommandResult run_engine(const std::vector<std::string>& arguments,
                         const std::string& allocator_settings, Seconds limit) {
  const auto engine = find_engine();
  if (!engine) return {};
  std::vector<std::string> command{engine->string()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  std::vector<std::string> extra;
  if (const auto torch = find_torch()) extra.push_back("LD_LIBRARY_PATH=" + library_path(*torch));
  if (!allocator_settings.empty()) extra.push_back("PYTORCH_CUDA_ALLOC_CONF=" + allocator_settings);
  return run_command(command, limit, extra);
}

}  // namespace headroom::cli

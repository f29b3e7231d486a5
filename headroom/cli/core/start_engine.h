// Finds headroom-engine and LibTorch, and starts the engine.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "headroom/allocator/settings.h"
#include "headroom/base/bytes.h"
#include "headroom/base/process.h"

namespace headroom::cli {

// Facts about a torch wheel, read from its version.py without loading it.
struct TorchWheel {
  std::filesystem::path folder;     // ".../site-packages/torch"
  std::string version;              // "2.11.0+cu130"
  std::optional<std::string> cuda;  // "13.0"; empty for a CPU-only build
  std::optional<std::string> hip;   // set for a ROCm build
};

// The PyTorch that the engine was built for, "2.15", and the command that installs one of it.
[[nodiscard]] std::string wanted_torch();
[[nodiscard]] std::string install_torch();

// Searches HEADROOM_TORCH, the active virtual environment, the .venv of the checkout of this build,
// the environment of the installation, and python3's import path. std::nullopt if there is none.
[[nodiscard]] std::optional<TorchWheel> find_torch();

// headroom-engine beside this program; std::nullopt if it was not built.
[[nodiscard]] std::optional<std::filesystem::path> find_engine();

// PYTORCH_CUDA_ALLOC_CONF for an engine on real cards: the user's own text, completed by
// allocator::recommend(). "" if no setting is needed. Throws UsageError if PyTorch would refuse the
// user's text.
[[nodiscard]] std::string engine_allocator_settings(std::optional<Bytes> card_total);

// Replaces this process by `headroom-engine arguments...` with the LibTorch found above, so the
// user sees the engine's output and exit code. Throws UnavailableError if there is no engine or no
// LibTorch.
[[noreturn]] void become_engine(const std::vector<std::string>& arguments);

// The command line of `headroom-engine arguments...`, and what its environment needs for the
// LibTorch found above. Throws UnavailableError as become_engine() does.
struct EngineCommand {
  std::vector<std::string> words, environment;
};
[[nodiscard]] EngineCommand engine_command(const std::vector<std::string>& arguments);

// Runs `headroom-engine arguments...` with the LibTorch found above, and with `allocator_settings`
// if not empty.
[[nodiscard]] CommandResult run_engine(const std::vector<std::string>& arguments,
                                       const std::string& allocator_settings, Seconds limit);

}  // namespace headroom::cli

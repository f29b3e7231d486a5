// The neighbour that has LibTorch: where it is, where LibTorch is, and how it is started.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "headroom/allocator/settings.h"
#include "headroom/base/bytes.h"
#include "headroom/base/process.h"

namespace headroom::cli {

// Facts of a torch wheel, read from its version.py without loading anything.
struct TorchWheel {
  std::filesystem::path folder;     // ".../site-packages/torch"
  std::string version;              // "2.11.0+cu130"
  std::optional<std::string> cuda;  // "13.0"; empty for a CPU-only build
  std::optional<std::string> hip;   // of a ROCm build
};

// HEADROOM_TORCH, an active virtual environment, the .venv of the checkout this program was built
// in, the environment it is installed in, what python3 would import. Nothing if there is none.
[[nodiscard]] std::optional<TorchWheel> find_torch();

// The folder that this program lies in.
[[nodiscard]] std::filesystem::path own_folder();

// headroom-engine beside this program; nothing if it was not built.
[[nodiscard]] std::optional<std::filesystem::path> find_engine();

// What is recommended for programs whose tensors change their sizes, as Headroom's do, beside what
// the user has set himself.
[[nodiscard]] allocator::Recommendation engine_allocator_advice(const std::string& user_text,
                                                                std::optional<Bytes> card_total);

// What PYTORCH_CUDA_ALLOC_CONF is to be for an engine that uses real cards: the user's own text,
// completed by the recommendation above. Empty: nothing is to be set. Throws UsageError for a text
// of the user that PyTorch would refuse.
[[nodiscard]] std::string engine_allocator_settings(std::optional<Bytes> card_total);

// This process becomes `headroom-engine arguments...`, with the LibTorch found above: what it
// prints and how it ends is what the user sees. Throws UnavailableError if there is no engine or no
// LibTorch.
[[noreturn]] void become_engine(const std::vector<std::string>& arguments);

// Runs `headroom-engine arguments...` with the LibTorch found above. `allocator_settings` are set
// if not empty.
[[nodiscard]] CommandResult run_engine(const std::vector<std::string>& arguments,
                                       const std::string& allocator_settings, Seconds limit);

}  // namespace headroom::cli

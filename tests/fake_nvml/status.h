// Return codes as text: the names used in state files and the sentences of nvmlErrorString.
#pragma once

#include <optional>
#include <string_view>

#include "nvml_abi.h"

namespace fake_nvml {

/// "GPU_IS_LOST" -> Status::kGpuIsLost; "OK" and "SUCCESS" both mean success. Nothing for a name
/// NVML does not have.
[[nodiscard]] std::optional<Status> status_from_name(std::string_view name);

/// What nvmlErrorString answers. Lives for ever; never null.
[[nodiscard]] const char* status_sentence(Status status);

}  // namespace fake_nvml

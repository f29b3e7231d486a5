// Writes tensors into a safetensors file, byte for byte as the format's own library does.
//
//   const auto file = write_safetensors("model.safetensors", tensors);
//   file->commit();   // replaces the old file
#pragma once

#include <filesystem>
#include <memory>

#include "headroom/base/output_file.h"
#include "headroom/weights/named_tensors.h"

namespace headroom::weights::detail {

// The file is complete, but not yet in place of an old one. Throws UsageError for a type that
// weights cannot have, and WriteError.
[[nodiscard]] std::unique_ptr<OutputFile> write_safetensors(const std::filesystem::path& path,
                                                            NamedTensors tensors);

// Makes a folder for such files if there is none. Throws WriteError.
void make_folder(const std::filesystem::path& path);

}  // namespace headroom::weights::detail

#include "headroom/cli/core/output_folder.h"

#include <filesystem>

#include "headroom/base/error.h"

namespace headroom::cli {

void check_folder_of(const std::string& file) {
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  std::error_code error;
  if (!folder.empty() && !std::filesystem::is_directory(folder, error))
    throw WriteError(file, "cannot be written: there is no folder " + folder.string());
}

}  // namespace headroom::cli

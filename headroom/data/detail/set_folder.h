// Finds a set's files where an archive was unpacked, and names what is missing.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "headroom/data/image_set.h"

namespace headroom::data::detail {

// Looks at `folder`, at its own folders in the order of names, and at its parent: returns the first
// with this file or folder. An empty path if there is none.
[[nodiscard]] std::filesystem::path folder_with(const std::filesystem::path& folder,
                                                const std::string& name);

// The folders, or else the regular files, in a folder, in the order of names; hidden ones are left
// out.
[[nodiscard]] std::vector<std::filesystem::path> folders_in(const std::filesystem::path& folder);
[[nodiscard]] std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder);

// Throws InputError if one of the images is not on disk, or if there is none.
void check_on_disk(const std::vector<LabelledImage>& images, const std::filesystem::path& folder,
                   const std::string& how_to_get);

}  // namespace headroom::data::detail

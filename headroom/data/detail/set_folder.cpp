#include "headroom/data/detail/set_folder.h"

#include <algorithm>

#include "headroom/base/error.h"

namespace headroom::data::detail {
namespace {

namespace fs = std::filesystem;

template <typename Wanted>
std::vector<fs::path> entries_in(const fs::path& folder, const Wanted& is_wanted) {
  std::vector<fs::path> found;
  std::error_code error;  // a folder that cannot be read is an empty one
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().filename().string().front() != '.' && is_wanted(entry))
      found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

std::vector<fs::path> folders_in(const fs::path& folder) {
  return entries_in(folder, [](const fs::directory_entry& entry) {
    std::error_code error;
    return entry.is_directory(error);
  });
}

std::vector<fs::path> files_in(const fs::path& folder) {
  return entries_in(folder, [](const fs::directory_entry& entry) {
    std::error_code error;
    return entry.is_regular_file(error);
  });
}

fs::path folder_with(const fs::path& folder, const std::string& name) {
  std::vector<fs::path> candidates{folder};
  for (const fs::path& inner : folders_in(folder)) candidates.push_back(inner);
  candidates.push_back(fs::absolute(folder / "").parent_path().parent_path());
  for (const fs::path& candidate : candidates)
    if (std::error_code error; fs::exists(candidate / name, error)) return candidate;
  return {};
}

void check_on_disk(const std::vector<LabelledImage>& images, const fs::path& folder,
                   const std::string& how_to_get) {
  if (images.empty()) throw InputError(expectation(folder.string(), "images", "none", how_to_get));
  std::size_t missing = 0;
  fs::path first;
  for (const LabelledImage& image : images) {
    if (std::error_code error; fs::exists(image.path, error)) continue;
    if (missing++ == 0) first = image.path;
  }
  if (missing == 0) return;
  throw InputError(expectation(
      folder.string(), "all " + std::to_string(images.size()) + " images",
      std::to_string(images.size() - missing) + ", without " + first.string(), how_to_get));
}

}  // namespace headroom::data::detail

#include <cmath>
#include <string>

#include "headroom/base/error.h"
#include "headroom/data/detail/image_library.h"
#include "headroom/data/detail/numbered.h"
#include "headroom/data/detail/set_folder.h"
#include "headroom/data/image_set.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kFlowers = 102;

std::string how_to_get_flowers(const fs::path& folder) {
  return "102flowers.tgz, imagelabels.mat and setid.mat from "
         "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/, in " +
         folder.string() + ", with the first one unpacked there";
}

// A variable of whole numbers from 1 to `most`.
std::vector<std::int64_t> numbers_in(const fs::path& file, const char* variable,
                                     std::int64_t most) {
  std::vector<double> values;
  const std::string problem = detail::image_functions().read_mat(file.c_str(), variable, values);
  if (!problem.empty())
    throw InputError(expectation(file.string(),
                                 std::string("a MATLAB file with `") + variable + "`", problem,
                                 how_to_get_flowers(file.parent_path())));
  std::vector<std::int64_t> numbers;
  for (const double value : values) {
    if (!(value >= 1 && value <= static_cast<double>(most)) || value != std::floor(value))
      throw InputError(expectation(
          file.string(), "whole numbers of 1 to " + std::to_string(most) + " in `" + variable + "`",
          std::to_string(value)));
    numbers.push_back(static_cast<std::int64_t>(value));
  }
  return numbers;
}

const char* variable_of(Split split) {
  return split == Split::train ? "trnid" : split == Split::validation ? "valid" : "tstid";
}

}  // namespace

std::shared_ptr<ImageSet> flowers102(const fs::path& folder, Split split,
                                     const ImageOptions& options) {
  const fs::path root = detail::folder_with(folder, "setid.mat");
  for (const char* name : {"setid.mat", "imagelabels.mat", "jpg"})
    if (root.empty() || !fs::exists(root / name))
      throw InputError(expectation(root.empty() ? folder.string() : root.string(),
                                   "jpg, imagelabels.mat and setid.mat of the 102 flowers",
                                   std::string("no ") + name,
                                   how_to_get_flowers(root.empty() ? folder : root)));
  const auto labels = numbers_in(root / "imagelabels.mat", "labels", kFlowers);
  const auto chosen =
      numbers_in(root / "setid.mat", variable_of(split), static_cast<std::int64_t>(labels.size()));
  std::vector<LabelledImage> images;
  for (const std::int64_t number : chosen)
    images.push_back({root / "jpg" / ("image_" + detail::numbered(number, 5) + ".jpg"),
                      labels[static_cast<std::size_t>(number - 1)] - 1});
  detail::check_on_disk(images, root / "jpg", how_to_get_flowers(root));
  std::vector<std::string> classes;
  for (std::int64_t i = 1; i <= kFlowers; ++i) classes.push_back(std::to_string(i));
  return std::make_shared<ImageSet>(std::move(images), std::move(classes), options);
}

}  // namespace headroom::data

#include <map>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/data/detail/set_folder.h"
#include "headroom/data/image_set.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolderForm =
    "a folder for each class with its .jpg files, or such folders in `train` and `val`";
constexpr std::size_t kHeldOut = 10;  // without a validation part: one in so many images

// Other images are refused rather than left out: a class would lose them in silence.
bool is_image(const fs::path& file) {
  const std::string ending = lower(file.extension().string());
  for (const char* other : {".png", ".gif", ".bmp", ".webp", ".tif", ".tiff"})
    if (ending == other)
      throw InputError(expectation(file.string(), "a JPEG image", "a file named " + ending,
                                   "converting it to .jpg"));
  return ending == ".jpg" || ending == ".jpeg";
}

// The images of a class: all of them, or those of one side of the line that holds some out.
enum class Share { all, kept, held_out };

std::vector<LabelledImage> images_of_class(const fs::path& folder, std::int64_t label,
                                           Share share) {
  std::vector<LabelledImage> images;
  std::size_t place = 0;
  for (const fs::path& file : detail::files_in(folder)) {
    if (!is_image(file)) continue;
    const bool held_out = ++place % kHeldOut == 0;
    if (share == Share::all || held_out == (share == Share::held_out))
      images.push_back({file, label});
  }
  return images;
}

// Where a part of the set is. Empty: it has no folder of its own.
fs::path folder_of_part(const fs::path& folder, Split split) {
  const std::vector<const char*> names = split == Split::train ? std::vector{"train"}
                                         : split == Split::validation
                                             ? std::vector{"val", "valid", "validation", "test"}
                                             : std::vector{"test", "val", "valid", "validation"};
  for (const char* name : names)
    if (fs::is_directory(folder / name)) return folder / name;
  return {};
}

}  // namespace

std::shared_ptr<ImageSet> image_folder(const fs::path& folder, Split split,
                                       const ImageOptions& options) {
  const fs::path named = folder_of_part(folder, Split::train),
                 training = named.empty() ? folder : named,
                 other = named.empty() ? fs::path() : folder_of_part(folder, Split::validation);
  std::vector<std::string> classes;
  std::map<std::string, std::int64_t> labels;
  for (const fs::path& of_class : detail::folders_in(training)) {
    labels[of_class.filename().string()] = static_cast<std::int64_t>(classes.size());
    classes.push_back(of_class.filename().string());
  }
  const fs::path from =
      split == Split::train || other.empty() ? training : folder_of_part(folder, split);
  const Share share = !other.empty()          ? Share::all
                      : split == Split::train ? Share::kept
                                              : Share::held_out;
  std::vector<LabelledImage> images;
  for (const fs::path& of_class : detail::folders_in(from)) {
    const auto label = labels.find(of_class.filename().string());
    if (label == labels.end())
      throw InputError(expectation(of_class.string(), "a class that the training part has",
                                   of_class.filename().string()));
    for (LabelledImage& image : images_of_class(of_class, label->second, share))
      images.push_back(std::move(image));
  }
  detail::check_on_disk(images, from, kFolderForm);
  return std::make_shared<ImageSet>(std::move(images), std::move(classes), options);
}

}  // namespace headroom::data

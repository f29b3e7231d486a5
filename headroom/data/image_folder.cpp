#include <map>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/data/detail/set_folder.h"
#include "headroom/data/image_set.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolderForm =
    "a folder for each class with its .jpg or .png files, or such folders in `train` and `val`";
constexpr std::size_t kHeldOut = 10;  // without a validation part: one in this many images

// Other images are refused rather than left out: a class would lose them in silence.
bool is_image(const fs::path& file) {
  const std::string ending = lower(file.extension().string());
  for (const char* other : {".gif", ".bmp", ".webp", ".tif", ".tiff"})
    if (ending == other)
      throw InputError(expectation(file.string(), "a JPEG or PNG image", "a file named " + ending,
                                   "converting it to .jpg or .png"));
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

std::vector<fs::path> image_files_in(const fs::path& folder) {
  std::vector<fs::path> files = detail::files_in(folder);
  std::erase_if(files, [](const fs::path& file) { return !is_image(file); });
  return files;
}

// The images of a class: all of them, or those of one side of the line that holds some out.
enum class Share { all, kept, held_out };

std::vector<LabelledImage> images_of_class(const fs::path& folder, std::int64_t label,
                                           Share share) {
  std::vector<LabelledImage> images;
  const std::vector<fs::path> files = image_files_in(folder);
  for (std::size_t place = 1; place <= files.size(); ++place) {
    const bool is_last_of_few = place == files.size() && place > 1 && place < kHeldOut,
               held_out = place % kHeldOut == 0 || is_last_of_few;
    if (share == Share::all || held_out == (share == Share::held_out))
      images.push_back({files[place - 1], label});
  }
  return images;
}

// The folders with images. `notes` gets a sentence on those without.
std::vector<fs::path> class_folders_in(const fs::path& training, std::vector<std::string>& notes) {
  std::vector<fs::path> folders = detail::folders_in(training);
  std::vector<std::string> empty;
  std::erase_if(folders, [&](const fs::path& folder) {
    const bool is_empty = image_files_in(folder).empty();
    if (is_empty) empty.push_back(folder.filename().string());
    return is_empty;
  });
  if (!empty.empty())
    notes.push_back("no classes, because they have no images: " + join(empty, ", ") + " in " +
                    training.string());
  return folders;
}

// The folder of a part of the set; an empty path if the part has none of its own.
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
  std::vector<std::string> classes, notes;
  std::map<std::string, std::int64_t> labels;
  for (const fs::path& of_class : class_folders_in(training, notes)) {
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
    if (label == labels.end() && image_files_in(of_class).empty()) continue;
    if (label == labels.end())
      throw InputError(expectation(of_class.string(), "a class that the training part has",
                                   of_class.filename().string()));
    for (LabelledImage& image : images_of_class(of_class, label->second, share))
      images.push_back(std::move(image));
  }
  const bool may_be_empty = share == Share::held_out && !classes.empty();
  if (!may_be_empty) detail::check_on_disk(images, from, kFolderForm);
  if (split != Split::train) notes.clear();
  return std::make_shared<ImageSet>(std::move(images), std::move(classes), options,
                                    std::move(notes));
}

}  // namespace headroom::data

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/text.h"
#include "headroom/data/detail/set_folder.h"
#include "headroom/data/image_set.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;

std::string how_to_get_birds(const fs::path& folder) {
  return "CUB_200_2011.tgz from https://www.vision.caltech.edu/datasets/cub_200_2011/, unpacked "
         "in " +
         folder.string();
}

// The lines of a file, each a number and a text: "17 002.Laysan_Albatross/a.jpg".
class NumberedLines {
 public:
  explicit NumberedLines(fs::path file) : file_(std::move(file)) {
    std::int64_t line = 0;
    for (const std::string_view text : split(content_ = read_input(file_), '\n')) {
      ++line;
      if (trim(text).empty()) continue;
      const auto blank = text.find(' ');
      const auto number = to_integer(text.substr(0, blank));
      if (blank == std::string_view::npos || !number)
        throw InputError(expectation(file_.string() + ":" + std::to_string(line),
                                     "a number, a blank and a text",
                                     without_controls(std::string(beginning(text, 80)))));
      texts_.emplace(*number, trim(text.substr(blank + 1)));
    }
  }

  [[nodiscard]] const std::map<std::int64_t, std::string_view>& all() const { return texts_; }
  [[nodiscard]] std::string_view text_of(std::int64_t number) const {
    const auto found = texts_.find(number);
    if (found == texts_.end())
      throw InputError(expectation(file_.string(), "a line for " + std::to_string(number), "none",
                                   how_to_get_birds(file_.parent_path().parent_path())));
    return found->second;
  }
  // From `least` to `most`.
  [[nodiscard]] std::int64_t number_of(std::int64_t number, std::int64_t least,
                                       std::int64_t most) const {
    const auto value = to_integer(text_of(number));
    if (!value || *value < least || *value > most)
      throw InputError(expectation(file_.string(),
                                   std::to_string(least) + " to " + std::to_string(most) +
                                       " in the line for " + std::to_string(number),
                                   without_controls(std::string(text_of(number)))));
    return *value;
  }

 private:
  fs::path file_;
  std::string content_;
  std::map<std::int64_t, std::string_view> texts_;
};

}  // namespace

std::shared_ptr<ImageSet> cub200(const fs::path& folder, Split split, const ImageOptions& options) {
  const fs::path root = detail::folder_with(folder, "image_class_labels.txt");
  for (const char* name :
       {"image_class_labels.txt", "images.txt", "train_test_split.txt", "classes.txt", "images"})
    if (root.empty() || !fs::exists(root / name))
      throw InputError(expectation(root.empty() ? folder.string() : root.string(),
                                   "images.txt, image_class_labels.txt, train_test_split.txt, "
                                   "classes.txt and images of CUB-200-2011",
                                   std::string("no ") + name, how_to_get_birds(folder)));
  const NumberedLines paths(root / "images.txt"), labels(root / "image_class_labels.txt"),
      training(root / "train_test_split.txt"), names(root / "classes.txt");
  std::vector<std::string> classes;
  for (std::int64_t i = 1; i <= static_cast<std::int64_t>(names.all().size()); ++i)
    classes.emplace_back(names.text_of(i));
  std::vector<LabelledImage> images;
  for (const auto& [number, path] : paths.all()) {
    const bool trains = training.number_of(number, 0, 1) == 1;
    const std::int64_t label =
        labels.number_of(number, 1, static_cast<std::int64_t>(classes.size()));
    if (trains == (split == Split::train)) images.push_back({root / "images" / path, label - 1});
  }
  detail::check_on_disk(images, root / "images", how_to_get_birds(folder));
  return std::make_shared<ImageSet>(std::move(images), std::move(classes), options);
}

}  // namespace headroom::data

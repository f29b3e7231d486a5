#include "tests/data/small_sets.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "headroom/base/descriptor.h"
#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "headroom/base/output_file.h"
#include "headroom/data/dataset.h"
#include "headroom/data/detail/image_library.h"
#include "headroom/data/detail/language.h"
#include "headroom/data/detail/numbered.h"
#include "headroom/data/detail/order.h"
#include "headroom/data/detail/picture.h"
#include "headroom/data/detail/random.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;
using detail::numbered;

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw WriteError("write_file", "cannot make " + folder.string() + ": " + error.message());
}

// Not flushed to the disk: made-up images can be made again.
void write_quickly(const fs::path& path, std::string_view content) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.is_open()) throw WriteError("write_file", write_failure(path, errno));
  write_all(file.get(), content, path);
}

// ---- Images ----

struct SmallImage {
  std::int64_t label = 0;
  Split split = Split::train;
  std::int64_t number = 0;  // from 1, of all images; a set's parts and classes are mixed
};

std::int64_t classes_in(const SmallImages& options, std::int64_t published) {
  for (const std::int64_t count :
       {options.classes, options.train - 1, options.validation, options.test, options.side - 8})
    if (count < 0)
      throw UsageError(expectation("small_sets",
                                   "an image of each class to train on, sides of 8 pixels or more, "
                                   "and no negative counts",
                                   std::to_string(count)));
  return options.classes == 0 ? published : options.classes;
}

std::vector<SmallImage> images_of(const SmallImages& options, std::int64_t classes) {
  std::vector<SmallImage> images;
  for (std::int64_t label = 0; label < classes; ++label)
    for (const auto& [split, count] :
         {std::pair(Split::train, options.train), std::pair(Split::validation, options.validation),
          std::pair(Split::test, options.test)})
      for (std::int64_t i = 0; i < count; ++i) images.push_back({label, split, 0});
  const auto size = static_cast<std::int64_t>(images.size());
  const detail::Order order(size, options.seed);
  for (std::int64_t i = 0; i < size; ++i) images[static_cast<std::size_t>(i)].number = order[i] + 1;
  std::sort(images.begin(), images.end(),
            [](const SmallImage& a, const SmallImage& b) { return a.number < b.number; });
  return images;
}

void write_image(const fs::path& file, const SmallImage& image, const SmallImages& options) {
  const std::uint64_t seed = detail::mixed(options.seed, {image.label, image.number});
  detail::Dice dice(seed);
  const auto shorter = static_cast<int>(options.side),
             longer = shorter + static_cast<int>(dice.below(options.side / 2));
  const bool upright = dice.below(2) == 0;
  const detail::Pixels pixels = detail::picture(
      upright ? detail::PixelSize{shorter, longer} : detail::PixelSize{longer, shorter},
      image.label, dice.next());
  constexpr int kQuality = 90;
  std::string jpeg;
  const std::string problem = detail::image_functions().encode(pixels, kQuality, jpeg);
  if (!problem.empty()) throw InternalError("small_sets", "cannot make a JPEG image: " + problem);
  write_quickly(file, jpeg);
}

void write_numbers(const fs::path& file, const detail::MatVariables& variables) {
  const std::string problem = detail::image_functions().write_mat(file.c_str(), variables);
  if (!problem.empty())
    throw WriteError("write_file", "cannot write " + file.string() + ": " + problem);
}

// ---- Tokens ----

template <typename Number>
void append_bytes(OutputFile& file, Number number) {
  char bytes[sizeof number];  // NOLINT
  std::memcpy(bytes, &number, sizeof number);
  file.write({bytes, sizeof number});
}

void write_texts(const fs::path& file, Split split, std::int64_t tokens,
                 const SmallTokens& options) {
  const bool wide = options.vocabulary > 65'536;
  const std::int64_t document_end = options.vocabulary - 1;
  const detail::Language language(document_end, options.seed);
  detail::Dice dice(detail::mixed(options.seed, {static_cast<std::int64_t>(split), tokens}));
  OutputFile out(file);
  std::string mask;
  const auto put = [&](std::int64_t token, bool learned) {
    wide ? append_bytes(out, static_cast<std::uint32_t>(token))
         : append_bytes(out, static_cast<std::uint16_t>(token));
    mask += learned ? '\1' : '\0';
  };
  for (std::int64_t left = tokens; left > 0;) {
    const std::int64_t length =
        std::min(left, options.document / 2 + 1 + dice.below(options.document));
    std::int64_t token = language.any(dice);
    for (std::int64_t i = 0; i + 1 < length; ++i) {
      put(token, i >= length / 4);
      token = language.after(token, dice);
    }
    put(document_end, true);
    left -= length;
  }
  out.commit();
  const Json form{{"schema", 1},
                  {"dtype", wide ? "uint32" : "uint16"},
                  {"tokens", tokens},
                  {"vocab_size", options.vocabulary},
                  {"document_end", document_end}};
  write_file_atomically(file.string() + ".json", to_line(form) + "\n");
  const fs::path mask_file = fs::path(file).replace_extension(".mask.bin");
  if (options.mask)
    write_file_atomically(mask_file, mask);
  else if (std::error_code error; !fs::remove(mask_file, error) && error)
    throw WriteError("write_file", "cannot remove " + mask_file.string() + ": " + error.message());
}

}  // namespace

void write_flowers102(const fs::path& folder, const SmallImages& options) {
  constexpr std::int64_t kPublished = 102;
  if (options.classes > kPublished)
    throw UsageError(
        expectation("write_flowers102", "at most 102 classes", std::to_string(options.classes)));
  make_folder(folder / "jpg");
  std::vector<double> labels, train, validation, test;
  for (const SmallImage& image : images_of(options, classes_in(options, kPublished))) {
    const auto number = static_cast<double>(image.number);
    labels.push_back(static_cast<double>(image.label + 1));
    (image.split == Split::train        ? train
     : image.split == Split::validation ? validation
                                        : test)
        .push_back(number);
    write_image(folder / "jpg" / ("image_" + numbered(image.number, 5) + ".jpg"), image, options);
  }
  write_numbers(folder / "imagelabels.mat", {{"labels", labels}});
  write_numbers(folder / "setid.mat", {{"trnid", train}, {"valid", validation}, {"tstid", test}});
}

void write_cub200(const fs::path& folder, const SmallImages& options) {
  constexpr std::int64_t kPublished = 200;
  const std::int64_t classes = classes_in(options, kPublished);
  SmallImages both = options;
  both.validation = 0;
  const auto name_of = [](std::int64_t label) {
    return "Made_up_Bird_" + std::to_string(label + 1);
  };
  const auto class_of = [&](std::int64_t label) {
    return numbered(label + 1, 3) + "." + name_of(label);
  };
  std::string names, paths, labels, training;
  for (std::int64_t label = 0; label < classes; ++label) {
    make_folder(folder / "images" / class_of(label));
    names += std::to_string(label + 1) + " " + class_of(label) + "\n";
  }
  std::vector<SmallImage> images = images_of(both, classes);
  // As published: class after class.
  std::stable_sort(images.begin(), images.end(),
                   [](const SmallImage& a, const SmallImage& b) { return a.label < b.label; });
  std::int64_t line = 0;
  for (const SmallImage& image : images) {
    const std::string path = class_of(image.label) + "/" + name_of(image.label) + "_" +
                             numbered(line % 100, 4) + "_" + std::to_string(image.number) + ".jpg";
    const std::string begin = std::to_string(++line) + " ";
    paths += begin + path + "\n";
    labels += begin + std::to_string(image.label + 1) + "\n";
    training += begin + (image.split == Split::train ? "1\n" : "0\n");
    write_image(folder / "images" / path, image, options);
  }
  write_file_atomically(folder / "classes.txt", names);
  write_file_atomically(folder / "images.txt", paths);
  write_file_atomically(folder / "image_class_labels.txt", labels);
  write_file_atomically(folder / "train_test_split.txt", training);
}

void write_image_folder(const fs::path& folder, const SmallImages& options) {
  constexpr std::int64_t kFolders = 10;
  for (const SmallImage& image : images_of(options, classes_in(options, kFolders))) {
    const char* const part = image.split == Split::train        ? "train"
                             : image.split == Split::validation ? "val"
                                                                : "test";
    const fs::path of_class = folder / part / ("class_" + numbered(image.label, 3));
    make_folder(of_class);
    write_image(of_class / (numbered(image.number, 5) + ".jpg"), image, options);
  }
}

void write_tokens(const fs::path& folder, const SmallTokens& options) {
  if (options.vocabulary < 2 || options.train < 1 || options.validation < 0 || options.document < 2)
    throw UsageError(expectation("write_tokens",
                                 "at least two tokens in the vocabulary and in a document, and "
                                 "something to train on",
                                 "less"));
  make_folder(folder);
  write_texts(folder / "train.bin", Split::train, options.train, options);
  if (options.validation > 0)
    write_texts(folder / "val.bin", Split::validation, options.validation, options);
}

}  // namespace headroom::data

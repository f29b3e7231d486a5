// Images with a class each: photographs in folders, and two published sets of them.
//
//   const std::filesystem::path folder = "data/flowers102";
//   const auto train = data::flowers102(folder, Split::train, {.side = 224, .augment = true});
//   const auto val = data::flowers102(folder, Split::validation, {.side = 224});
//   train->example(0, seed);   // {pixels [3, 224, 224] float, class [] int64}
//
// Images are JPEG or PNG files, read and decoded when an example is asked for; a PNG's transparency
// is ignored, as Pillow's convert("RGB") does. Nothing is kept in memory but their names. Decoding
// needs libheadroom_images.so, which is loaded with the first image, and through it libturbojpeg,
// libpng and libmatio; where they are missing, these functions throw UnavailableError.
//
// Without augmentation an image is scaled until its shorter side is `side` / `crop`, and the square
// in its centre is cut out. With it, a random part of the image is scaled to the square, and half
// of the squares are mirrored, as torchvision's RandomResizedCrop and RandomHorizontalFlip do.
// Scaling averages over all pixels that shrink into one (bilinear, antialiased, as Pillow's). Large
// JPEG images are decoded at a half, a quarter or an eighth of their size if that leaves at least
// twice the pixels needed a side. The orientation that a camera notes in a file (Exif) is not
// applied.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "headroom/data/dataset.h"

namespace headroom::data {

struct ImageOptions {
  std::int64_t side = 224;      // pixels of an example
  bool augment = false;         // random parts, mirrored at random: for training
  double crop = 224.0 / 256;    // without augmentation: the share of the shorter side that is seen
  double smallest_part = 0.08;  // with it: of the image's area
  // A pixel of 0 to 1 becomes (pixel - mean) / deviation, by colour: red, green, blue. These are
  // ImageNet's, which most published models expect.
  std::array<float, 3> mean{0.485F, 0.456F, 0.406F};
  std::array<float, 3> deviation{0.229F, 0.224F, 0.225F};
  // Decodes each image when the set is made, and leaves out those that are damaged: some 5 ms a
  // photograph and core. Without it a damaged image is an error when it is read.
  bool skip_damaged = false;
};

struct LabelledImage {
  std::filesystem::path path;
  std::int64_t label = 0;  // from 0
};

class ImageSet : public Dataset {
 public:
  // Any list of files. Throws UsageError for options that make no sense and for labels without a
  // class, and InputError if all images are damaged. `notes`: sentences on what the caller has left
  // out.
  ImageSet(std::vector<LabelledImage> images, std::vector<std::string> classes,
           const ImageOptions& options, std::vector<std::string> notes = {});

  [[nodiscard]] std::int64_t size() const override;
  // Throws InputError, with the file's name, for an image that is missing, broken or truncated.
  [[nodiscard]] Tensors example(std::int64_t index, std::uint64_t seed) const override;

  [[nodiscard]] const std::vector<LabelledImage>& images() const { return images_; }
  [[nodiscard]] const std::vector<std::string>& classes() const { return classes_; }
  [[nodiscard]] const ImageOptions& options() const { return options_; }
  // Sentences about what was left out: folders without images, damaged images.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

 private:
  std::vector<LabelledImage> images_;
  std::vector<std::string> classes_;
  ImageOptions options_;
  std::vector<std::string> notes_;
};

// A folder for each class, named for it, with .jpg, .jpeg or .png files; one without images is not
// a class. If `folder` has a folder `train`, the classes are in that and in `val` (or `valid`,
// `validation`) and `test`. Without a validation part, every tenth image of a class, in the order
// of names, is for validation and not for training; of two to nine images the last one is. That
// part is then empty if no class has two images.
//
// All three throw InputError where something is missing or broken, with what was expected where and
// how to get it. A part has all its images on disk, or it is an error.
[[nodiscard]] std::shared_ptr<ImageSet> image_folder(const std::filesystem::path& folder,
                                                     Split split, const ImageOptions& options = {});

// Oxford's 102 Category Flower Dataset as published: jpg/image_00001.jpg and so on,
// imagelabels.mat, setid.mat. Its parts are trnid (1,020 images), valid (1,020) and tstid (6,149).
// `folder`, one of its folders, or the folder that it is in holds them.
[[nodiscard]] std::shared_ptr<ImageSet> flowers102(const std::filesystem::path& folder, Split split,
                                                   const ImageOptions& options = {});

// Caltech-UCSD Birds-200-2011 as published: images.txt, image_class_labels.txt,
// train_test_split.txt, classes.txt, images/. Its parts are train (5,994 images) and test (5,794),
// which is the validation part too. `folder` as above, so that of the unpacked archive will do.
[[nodiscard]] std::shared_ptr<ImageSet> cub200(const std::filesystem::path& folder, Split split,
                                               const ImageOptions& options = {});

}  // namespace headroom::data

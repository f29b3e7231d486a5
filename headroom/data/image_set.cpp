#include "headroom/data/image_set.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/data/detail/image_library.h"
#include "headroom/data/detail/part_of_image.h"
#include "headroom/data/detail/tensors.h"

namespace headroom::data {
namespace {

void check_images(const ImageOptions& options) {
  const auto refuse = [](const char* expected, const std::string& received) {
    throw UsageError(expectation("ImageSet", expected, received));
  };
  if (options.side < 1) refuse("at least one pixel a side", std::to_string(options.side));
  const auto share = [&](double value, const char* expected) {
    if (!(value > 0 && value <= 1)) refuse(expected, std::to_string(value));
  };
  share(options.crop, "a share of 0 to 1 for `crop`");
  share(options.smallest_part, "a share of 0 to 1 for `smallest_part`");
  for (const float deviation : options.deviation)
    if (!(deviation > 0)) refuse("deviations above 0", std::to_string(deviation));
}

[[noreturn]] void broken_image(const std::filesystem::path& path, const std::string& problem) {
  throw InputError(
      expectation(path.string(), "a whole JPEG or PNG image", problem,
                  "another copy of the file, or skip_damaged=true to train without it"));
}

// The image, and how many times smaller it was decoded.
struct DecodedImage {
  detail::Pixels pixels;
  detail::Part part;  // in those pixels
};

// More than any camera's. A small file can claim a size whose pixels fill the memory.
constexpr double kMostPixels = 5e8;

DecodedImage decoded_image(const std::filesystem::path& path, const ImageOptions& options,
                           detail::Dice& dice) {
  const detail::ImageFunctions& images = detail::image_functions();
  const std::string bytes = read_input(path);
  if (bytes.empty()) broken_image(path, "an empty file");
  detail::PixelSize size;
  if (const auto problem = images.size_of(bytes, size); !problem.empty())
    broken_image(path, problem);
  if (static_cast<double>(size.width) * size.height > kMostPixels)
    broken_image(path,
                 std::to_string(size.width) + " x " + std::to_string(size.height) + " pixels");
  const detail::Part part = options.augment ? detail::random_part(size, options, dice)
                                            : detail::central_part(size, options);
  DecodedImage image;
  const int divisor = detail::divisor_for(part, options);
  if (const auto problem = images.decode(bytes, divisor, image.pixels); !problem.empty())
    broken_image(path, problem);
  const double across = static_cast<double>(image.pixels.size.width) / size.width,
               down = static_cast<double>(image.pixels.size.height) / size.height;
  image.part = {part.x * across, part.y * down, part.width * across, part.height * down};
  return image;
}

// The damage of an image, or "" if it is sound. Decodes at the smallest size, for speed.
std::string damage_of(const std::filesystem::path& path) {
  detail::Dice dice(0);
  try {
    static_cast<void>(decoded_image(path, {.side = 1, .crop = 1}, dice));
  } catch (const InputError& error) {
    const std::string sentence = error.sentence();
    return sentence.substr(0, sentence.find("; try "));
  }
  return "";
}

std::vector<std::string> damages_of(const std::vector<LabelledImage>& images) {
  static_cast<void>(detail::image_functions());  // throws here where it is missing
  std::vector<std::string> all(images.size());
  std::atomic<std::size_t> next{0};
  const auto look = [&] {
    for (std::size_t i = next++; i < images.size(); i = next++) all[i] = damage_of(images[i].path);
  };
  std::vector<std::jthread> threads;
  for (unsigned i = 1; i < std::min(8U, std::thread::hardware_concurrency()); ++i)
    threads.emplace_back(look);
  look();
  threads.clear();  // waits
  return all;
}

// Removes the damaged ones. Returns a sentence on them, or "" if there was none.
std::string leave_out_damaged(std::vector<LabelledImage>& images) {
  const std::vector<std::string> damages = damages_of(images);
  std::vector<LabelledImage> sound;
  std::string first;
  for (std::size_t i = 0; i < images.size(); ++i) {
    if (damages[i].empty()) sound.push_back(images[i]);
    if (first.empty()) first = damages[i];
  }
  if (first.empty()) return "";
  const std::size_t all = images.size(), lost = all - sound.size();
  if (sound.empty())
    throw InputError("expected images that are not damaged, received none among " +
                     std::to_string(all) + "; the first: " + first);
  images = std::move(sound);
  return std::to_string(lost) + " of " + std::to_string(all) +
         " images are damaged and left out; the first: " + first;
}

}  // namespace

ImageSet::ImageSet(std::vector<LabelledImage> images, std::vector<std::string> classes,
                   const ImageOptions& options, std::vector<std::string> notes)
    : images_(std::move(images)),
      classes_(std::move(classes)),
      options_(options),
      notes_(std::move(notes)) {
  check_images(options_);
  for (const LabelledImage& image : images_)
    if (image.label < 0 || image.label >= static_cast<std::int64_t>(classes_.size()))
      throw UsageError(expectation(
          "ImageSet",
          "a label below " + std::to_string(classes_.size()) + " for " + image.path.string(),
          std::to_string(image.label)));
  if (!options_.skip_damaged || images_.empty()) return;
  if (std::string note = leave_out_damaged(images_); !note.empty())
    notes_.push_back(std::move(note));
}

std::int64_t ImageSet::size() const {
  return static_cast<std::int64_t>(images_.size());
}

Tensors ImageSet::example(std::int64_t index, std::uint64_t seed) const {
  const LabelledImage& image = images_.at(static_cast<std::size_t>(index));
  detail::Dice dice(seed);
  const DecodedImage decoded = decoded_image(image.path, options_, dice);
  const bool mirrored = options_.augment && dice.below(2) == 1;
  const at::Tensor pixels = detail::empty({3, options_.side, options_.side}, at::kFloat);
  detail::scale_into(decoded.pixels, decoded.part, options_.side, mirrored,
                     {options_.mean, options_.deviation}, pixels.mutable_data_ptr<float>());
  return {pixels, detail::whole_number(image.label)};
}

}  // namespace headroom::data

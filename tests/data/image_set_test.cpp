#include "headroom/data/image_set.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <fstream>
#include <set>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/data/detail/image_library.h"
#include "headroom/data/loader.h"
#include "tests/data/small_sets.h"
#include "tests/support/temporary_folder.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;
using headroom::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const fs::path kImageFixtures = fs::path(HEADROOM_SOURCE_DIR) / "tests/data/fixtures";
const ImageOptions kSmall{.side = 32, .crop = 0.8};

// Numbers that Python wrote.
torch::Tensor stored(const fs::path& file, const std::vector<std::int64_t>& sizes) {
  std::string bytes = read_input(file);
  return torch::from_blob(bytes.data(), sizes, torch::kFloat).clone();
}

double largest_difference(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

ImageSet one_image(const fs::path& file, const ImageOptions& options = kSmall) {
  return {{{file, 0}}, {"one"}, options};
}

template <typename Action>
std::string input_error_of(const Action& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no InputError";
}

std::int64_t label_of(const ImageSet& set, std::int64_t index) {
  return set.example(index, 0)[1].item<std::int64_t>();
}

// ---- Pixels ----

// A step of grey is 1 / 255 / 0.225 = 0.017 here; Pillow rounds twice to whole steps.
TEST(ImageSet, SeesWhatPillowSees) {
  const ImageSet set = one_image(kImageFixtures / "flowers102/jpg/image_00003.jpg");
  const torch::Tensor right = stored(kImageFixtures / "flowers102/image_00003.seen", {3, 32, 32});
  EXPECT_LT(largest_difference(set.example(0, 0)[0], right), 1.5 * 0.0175);
}

// Decoded at a quarter of its size, the image is a little softer at sharp edges.
TEST(ImageSet, SeesNearlyTheSameInALargeImageDecodedSmaller) {
  const torch::Tensor ours = one_image(kImageFixtures / "large.jpg").example(0, 0)[0],
                      right = stored(kImageFixtures / "large.seen", {3, 32, 32});
  EXPECT_LT((ours - right).abs().mean().item<double>(), 0.0175);
  EXPECT_LT(largest_difference(ours, right), 10 * 0.0175);
}

TEST(ImageSet, ReadsGreyImagesAndInks) {
  const fs::path birds = kImageFixtures / "birds/CUB_200_2011/images";
  const ImageOptions plain{.side = 32, .crop = 1, .mean = {0, 0, 0}, .deviation = {1, 1, 1}};
  const torch::Tensor grey =
      one_image(birds / "001.Black_footed_Albatross/Black_Footed_Albatross_0009_34.jpg", plain)
          .example(0, 0)[0];
  EXPECT_TRUE(torch::equal(grey[0], grey[2]));
  const torch::Tensor inks =
      one_image(birds / "002.Laysan_Albatross/Laysan_Albatross_0002_1027.jpg", plain)
          .example(0, 0)[0];
  EXPECT_GT(inks.mean().item<double>(), 0.3);
  EXPECT_LT(inks.mean().item<double>(), 0.7);
}

TEST(ImageSet, ScalesSmallImagesUp) {
  const TemporaryFolder folder;
  write_image_folder(folder.path(), {.classes = 1, .side = 8});
  const auto set = image_folder(folder.path(), Split::train, {.side = 64, .augment = true});
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    EXPECT_THAT(set->example(0, seed)[0].sizes(), ElementsAre(3, 64, 64));
}

TEST(ImageSet, AugmentsByTheSeedAlone) {
  const ImageSet set = one_image(kImageFixtures / "large.jpg", {.side = 32, .augment = true});
  const auto seen = [&](std::uint64_t seed) { return set.example(0, seed)[0]; };
  EXPECT_TRUE(torch::equal(seen(1), seen(1)));
  EXPECT_FALSE(torch::equal(seen(1), seen(2)));
  const ImageSet plain = one_image(kImageFixtures / "large.jpg");
  EXPECT_TRUE(torch::equal(plain.example(0, 1)[0], plain.example(0, 2)[0]));
}

// With the whole image as the only part, what is left is the mirror.
TEST(ImageSet, MirrorsHalfOfTheImages) {
  const TemporaryFolder folder;
  write_image_folder(folder.path(), {.classes = 1, .side = 9});
  const ImageOptions whole{.side = 9, .augment = true, .smallest_part = 1};
  const auto set = image_folder(folder.path(), Split::train, whole);
  std::vector<torch::Tensor> seen;
  int first = 0, mirrored = 0;
  const torch::Tensor one = set->example(0, 0)[0], other = one.flip(2);
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const torch::Tensor now = set->example(0, seed)[0];
    first += largest_difference(now, one) < 1e-5 ? 1 : 0;
    mirrored += largest_difference(now, other) < 1e-5 ? 1 : 0;
  }
  EXPECT_GT(first, 60);
  EXPECT_GT(mirrored, 60);
}

TEST(ImageSet, LoadsTheSameWithAnyNumberOfThreads) {
  const TemporaryFolder folder;
  write_image_folder(folder.path(), {.classes = 3, .side = 16});
  const auto set = image_folder(folder.path(), Split::train, {.side = 16, .augment = true});
  const LoaderOptions options{.batch_size = 5, .shuffle = true, .seed = 4, .workers = 0};
  LoaderOptions threads = options;
  threads.workers = 3;
  Loader one(set, options), other(set, threads);
  for (int i = 0; i < 7; ++i) {
    const Batch a = one.next(), b = other.next();
    EXPECT_TRUE(torch::equal(a.tensors[0], b.tensors[0]));
    EXPECT_TRUE(torch::equal(a.tensors[1], b.tensors[1]));
  }
}

// Most folders have some, and each ended the command. 5 x 5 pixels whose values make_fixtures.py
// computes by this formula.
TEST(ImageSet, ReadsEveryKindOfPng) {
  const torch::Tensor across = torch::arange(5.0F).expand({5, 5}), down = across.t(),
                      right =
                          torch::stack({50 * across, 60 * down, 200 - 10 * across - 20 * down}) /
                          255;
  const ImageOptions plain{.side = 5, .crop = 1, .mean = {0, 0, 0}, .deviation = {1, 1, 1}};
  const auto seen = [&](const char* name) {
    return one_image(kImageFixtures / "png" / name, plain).example(0, 0)[0];
  };
  for (const char* name : {"colour.png", "transparent.png", "deep.png", "palette.png"})
    EXPECT_LT(largest_difference(seen(name), right), 1e-6) << name;
  EXPECT_LT(largest_difference(seen("grey.png"), right[0].expand({3, 5, 5})), 1e-6);
}

// ---- Broken images and options ----

TEST(ImageSet, NamesABrokenImage) {
  const TemporaryFolder folder;
  const std::string whole = read_input(kImageFixtures / "large.jpg");
  const auto complaint = [&](const std::string& bytes) {
    const ImageSet set = one_image(folder.write("photo.jpg", bytes));
    return input_error_of([&] { static_cast<void>(set.example(0, 0)); });
  };
  EXPECT_THAT(complaint(whole), HasSubstr("no InputError"));
  EXPECT_THAT(complaint(""), AllOf(HasSubstr("photo.jpg"), HasSubstr("an empty file")));
  EXPECT_THAT(complaint("<html>not found</html>"),
              AllOf(HasSubstr("photo.jpg] expected a whole JPEG or PNG image"),
                    HasSubstr("Not a JPEG"), HasSubstr("skip_damaged=true")));
  for (const double share : {0.0001, 0.01, 0.1, 0.5, 0.95})
    EXPECT_THAT(complaint(whole.substr(
                    0, static_cast<std::size_t>(share * static_cast<double>(whole.size())))),
                HasSubstr("photo.jpg"))
        << share;
  const std::string png = read_input(kImageFixtures / "png/colour.png");
  for (const std::size_t bytes : {10U, 30U, 60U, 100U})
    EXPECT_THAT(complaint(png.substr(0, bytes)), HasSubstr("photo.jpg")) << bytes;
  fs::remove(folder.path() / "photo.jpg");
  EXPECT_THAT(input_error_of(
                  [&] { static_cast<void>(one_image(folder.path() / "photo.jpg").example(0, 0)); }),
              AllOf(HasSubstr("photo.jpg"), HasSubstr("No such file")));
}

// A damaged image ended a run in its middle, and met it again after each resume.
TEST(ImageSet, LeavesDamagedImagesOutIfAsked) {
  const TemporaryFolder folder;
  const std::string whole = read_input(kImageFixtures / "large.jpg");
  folder.write("a/1.jpg", whole);
  folder.write("a/2.jpg", whole.substr(0, whole.size() / 2));
  folder.write("a/3.png", read_input(kImageFixtures / "png/grey.png"));
  folder.write("b/4.jpg", "");
  folder.write("b/5.jpg", whole);
  const std::vector<LabelledImage> images{{folder.path() / "a/1.jpg", 0},
                                          {folder.path() / "a/2.jpg", 0},
                                          {folder.path() / "a/3.png", 0},
                                          {folder.path() / "b/4.jpg", 1},
                                          {folder.path() / "b/5.jpg", 1}};
  ImageOptions options = kSmall;
  options.skip_damaged = true;
  const ImageSet set(images, {"a", "b"}, options);
  ASSERT_EQ(set.size(), 3);
  for (const std::int64_t i : {0, 1, 2}) EXPECT_EQ(label_of(set, i), i == 2 ? 1 : 0);
  EXPECT_THAT(set.notes(), ElementsAre(AllOf(HasSubstr("2 of 5 images are damaged and left out"),
                                             HasSubstr("a/2.jpg"), Not(HasSubstr("try")))));
  EXPECT_THAT(input_error_of([&] {
                ImageSet({images[1], images[3]}, {"a", "b"}, options);
              }),
              HasSubstr("received none among 2"));
}

// Bytes changed at random: an error or pixels, but no crash.
TEST(ImageSet, SurvivesGarbage) {
  const TemporaryFolder folder;
  for (const char* file : {"flowers102/jpg/image_00001.jpg", "png/colour.png", "png/palette.png"}) {
    const std::string whole = read_input(kImageFixtures / file);
    for (std::size_t i = 0; i < 150; ++i) {
      std::string bytes = whole;
      for (std::size_t k = 0; k < 3; ++k)
        bytes[(i * 7919 + k * 104'729) % bytes.size()] = static_cast<char>(i * 31 + k);
      const ImageSet set = one_image(folder.write("photo.jpg", bytes));
      try {
        EXPECT_THAT(set.example(0, 0)[0].sizes(), ElementsAre(3, 32, 32));
      } catch (const InputError&) {
      }
    }
  }
}

TEST(ImageSet, NamesOptionsThatMakeNoSense) {
  for (const ImageOptions& options :
       {ImageOptions{.side = 0}, ImageOptions{.crop = 0}, ImageOptions{.crop = 1.1},
        ImageOptions{.smallest_part = 0}, ImageOptions{.deviation = {1, 0, 1}}})
    EXPECT_THROW(one_image("a.jpg", options), UsageError);
  EXPECT_THROW(ImageSet({{"a.jpg", 1}}, {"one"}, {}), UsageError);
}

TEST(ImageLibrary, SaysWhatIsMissing) {
  const auto load = [](const fs::path& file) {
    try {
      static_cast<void>(detail::load_images_from(file));
    } catch (const UnavailableError& error) {
      return std::string(error.what());
    }
    return std::string("no UnavailableError");
  };
  EXPECT_THAT(load("/nowhere/libheadroom_images.so"),
              AllOf(HasSubstr("/nowhere/libheadroom_images.so"), HasSubstr("libturbojpeg0")));
  EXPECT_THAT(load(FAKE_NVML), HasSubstr("another version"));
}

// ---- A folder for each class ----

void put_images(const TemporaryFolder& folder, const fs::path& in, int count) {
  for (int i = 0; i < count; ++i)
    folder.write(in / (std::to_string(100 + i) + (i % 2 == 0 ? ".jpg" : ".JPEG")), "image");
}

TEST(ImageFolder, TakesClassesFromTheNamesOfFolders) {
  const TemporaryFolder folder;
  put_images(folder, "train/dog", 2);
  put_images(folder, "train/cat", 3);
  put_images(folder, "val/dog", 1);
  folder.write("train/cat/notes.txt", "");
  folder.write("train/.hidden/1.jpg", "");
  const auto train = image_folder(folder.path(), Split::train),
             val = image_folder(folder.path(), Split::validation);
  EXPECT_THAT(train->classes(), ElementsAre("cat", "dog"));
  EXPECT_EQ(train->size(), 5);
  EXPECT_EQ(train->images()[0].path, folder.path() / "train/cat/100.jpg");
  ASSERT_EQ(val->size(), 1);
  EXPECT_EQ(val->images()[0].label, 1);
  EXPECT_EQ(image_folder(folder.path(), Split::test)->images()[0].path, val->images()[0].path);
}

TEST(ImageFolder, HoldsOutATenthWithoutAValidationPart) {
  for (const fs::path in : {"", "train"}) {
    const TemporaryFolder folder;
    put_images(folder, in / "a", 25);
    put_images(folder, in / "b", 10);
    const auto train = image_folder(folder.path(), Split::train),
               val = image_folder(folder.path(), Split::validation);
    EXPECT_EQ(train->size(), 32);
    EXPECT_EQ(val->size(), 3);
    std::set<fs::path> all;
    for (const auto& set : {train, val})
      for (const LabelledImage& image : set->images()) all.insert(image.path);
    EXPECT_EQ(all.size(), 35U);
  }
}

// Two classes of nine images ended with "expected images, received none": the part to evaluate on
// was empty. Few-shot sets are usual.
TEST(ImageFolder, HoldsOutTheLastOfAFewImages) {
  const TemporaryFolder folder;
  put_images(folder, "a", 2);
  put_images(folder, "b", 9);
  put_images(folder, "c", 1);
  const auto train = image_folder(folder.path(), Split::train),
             val = image_folder(folder.path(), Split::validation);
  EXPECT_EQ(train->size(), 10);
  ASSERT_EQ(val->size(), 2);
  EXPECT_EQ(val->images()[0].path, folder.path() / "a/101.JPEG");
  EXPECT_EQ(val->images()[1].path, folder.path() / "b/108.jpg");
}

TEST(ImageFolder, HasNothingToEvaluateOnWithOneImageOfEachClass) {
  const TemporaryFolder folder;
  put_images(folder, "a", 1);
  put_images(folder, "b", 1);
  EXPECT_EQ(image_folder(folder.path(), Split::train)->size(), 2);
  EXPECT_EQ(image_folder(folder.path(), Split::validation)->size(), 0);
}

// A folder without images was a class: five outputs for four classes.
TEST(ImageFolder, TakesNoClassFromAnEmptyFolder) {
  const TemporaryFolder folder;
  put_images(folder, "cat", 3);
  put_images(folder, "dog", 3);
  folder.write("notes/readme.txt", "");
  const auto train = image_folder(folder.path(), Split::train);
  EXPECT_THAT(train->classes(), ElementsAre("cat", "dog"));
  EXPECT_THAT(train->notes(), ElementsAre(HasSubstr("because they have no images: notes")));
  EXPECT_THAT(image_folder(folder.path(), Split::validation)->notes(), IsEmpty());
}

TEST(ImageFolder, SaysWhatIsMissing) {
  const TemporaryFolder folder;
  const auto complaint = [&](Split split = Split::train) {
    return input_error_of([&] { static_cast<void>(image_folder(folder.path(), split)); });
  };
  EXPECT_THAT(input_error_of(
                  [&] { static_cast<void>(image_folder(folder.path() / "none", Split::train)); }),
              AllOf(HasSubstr("expected images, received none"), HasSubstr("for each class")));
  put_images(folder, "train/a", 2);
  put_images(folder, "val/b", 2);
  EXPECT_THAT(complaint(Split::validation), HasSubstr("a class that the training part has"));
  folder.write("train/a/1.webp", "");
  EXPECT_THAT(complaint(), AllOf(HasSubstr("1.webp"), HasSubstr("converting it to .jpg")));
}

TEST(SmallImageFolder, IsReadBack) {
  const TemporaryFolder folder;
  write_image_folder(folder.path(), {.classes = 4, .train = 3, .validation = 2, .side = 16});
  const auto train = image_folder(folder.path(), Split::train, kSmall),
             val = image_folder(folder.path(), Split::validation, kSmall);
  EXPECT_EQ(train->size(), 12);
  EXPECT_EQ(val->size(), 8);
  EXPECT_EQ(image_folder(folder.path(), Split::test)->size(), 4);
  EXPECT_EQ(label_of(*train, 3), 1);
  EXPECT_FALSE(torch::equal(train->example(0, 0)[0], train->example(1, 0)[0]));
}

}  // namespace
}  // namespace headroom::data

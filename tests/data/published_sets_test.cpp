// Flowers-102 and CUB-200-2011: in the fixtures that make_fixtures.py wrote, and in those that
// tests/data/small_sets.h writes.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <map>
#include <set>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/data/image_set.h"
#include "tests/data/small_sets.h"
#include "tests/support/temporary_folder.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;
using headroom::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const fs::path kPublished = fs::path(HEADROOM_SOURCE_DIR) / "tests/data/fixtures";
const ImageOptions kTiny{.side = 8};

// Each image's file and label: "image_00005 76".
std::vector<std::string> seen_in(const ImageSet& set) {
  std::vector<std::string> seen;
  for (const LabelledImage& image : set.images())
    seen.push_back(image.path.stem().string() + " " + std::to_string(image.label));
  return seen;
}

template <typename Action>
std::string complaint_about(const Action& action) {
  try {
    static_cast<void>(action());
  } catch (const InputError& error) {
    return error.what();
  }
  return "no InputError";
}

// A copy of a fixture, to be broken.
struct Copy : TemporaryFolder {
  explicit Copy(const char* fixture) {
    fs::copy(kPublished / fixture, path(), fs::copy_options::recursive);
  }
};

// The parts share no image, and each image of each part can be read.
void expect_whole(const std::vector<std::shared_ptr<ImageSet>>& parts, std::size_t images) {
  std::set<fs::path> all;
  for (const auto& part : parts)
    for (std::int64_t i = 0; i < part->size(); ++i) {
      EXPECT_TRUE(all.insert(part->images()[static_cast<std::size_t>(i)].path).second);
      EXPECT_THAT(part->example(i, 0)[0].sizes(), ElementsAre(3, 8, 8));
    }
  EXPECT_EQ(all.size(), images);
}

// ---- Flowers-102 ----

TEST(Flowers102, ReadsThePublishedForm) {
  const fs::path folder = kPublished / "flowers102";
  const auto train = flowers102(folder, Split::train, kTiny),
             validation = flowers102(folder, Split::validation, kTiny),
             test = flowers102(folder, Split::test, kTiny);
  EXPECT_EQ(train->classes().size(), 102U);
  EXPECT_THAT(seen_in(*train), ElementsAre("image_00005 76", "image_00002 0", "image_00001 101"));
  EXPECT_THAT(seen_in(*validation), ElementsAre("image_00006 101", "image_00004 0"));
  EXPECT_THAT(seen_in(*test), ElementsAre("image_00003 76"));
  expect_whole({train, validation, test}, 6);
  EXPECT_EQ(train->example(0, 0)[1].item<std::int64_t>(), 76);
}

TEST(Flowers102, AcceptsTheFolderAboveAndThoseInIt) {
  EXPECT_EQ(flowers102(kPublished, Split::train)->size(), 3);
  EXPECT_EQ(flowers102(kPublished / "flowers102/jpg", Split::train)->size(), 3);
  EXPECT_EQ(flowers102(kPublished / "flowers102/jpg/", Split::train)->size(), 3);
}

TEST(Flowers102, SaysWhatIsMissingAndWhereToGetIt) {
  for (const char* name : {"setid.mat", "imagelabels.mat", "jpg"}) {
    const Copy folder("flowers102");
    fs::remove_all(folder.path() / name);
    EXPECT_THAT(complaint_about([&] { return flowers102(folder.path(), Split::train); }),
                AllOf(HasSubstr(folder.path().string()), HasSubstr(std::string("no ") + name),
                      HasSubstr("https://www.robots.ox.ac.uk/~vgg/data/flowers/102/")));
  }
  const Copy folder("flowers102");
  fs::remove(folder.path() / "jpg/image_00002.jpg");
  EXPECT_THAT(complaint_about([&] { return flowers102(folder.path(), Split::train); }),
              AllOf(HasSubstr("all 3 images, received '2, without"), HasSubstr("image_00002.jpg"),
                    HasSubstr("102flowers.tgz")));
  EXPECT_EQ(flowers102(folder.path(), Split::validation)->size(), 2);
}

TEST(Flowers102, RefusesBrokenTables) {
  const std::string whole = read_input(kPublished / "flowers102/setid.mat");
  const Copy folder("flowers102");
  for (const std::string& bytes :
       {std::string(), std::string("not found"), whole.substr(0, 100), whole.substr(0, 150),
        read_input(kPublished / "flowers102/imagelabels.mat")}) {
    folder.write("setid.mat", bytes);
    EXPECT_THAT(complaint_about([&] { return flowers102(folder.path(), Split::train); }),
                AllOf(HasSubstr("setid.mat"), HasSubstr("`trnid`")))
        << bytes.size();
  }
}

// Bytes changed at random: an error or numbers, but no crash.
TEST(Flowers102, SurvivesGarbage) {
  const std::string whole = read_input(kPublished / "flowers102/setid.mat");
  const Copy folder("flowers102");
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] = static_cast<char>(i % 2 == 0 ? 0xff : bytes[i] ^ 1);
    folder.write("setid.mat", bytes);
    complaint_about([&] { return flowers102(folder.path(), Split::train); });
  }
}

TEST(SmallFlowers102, IsReadBack) {
  const TemporaryFolder folder;
  write_flowers102(folder.path(), {.train = 2, .side = 8});
  const auto train = flowers102(folder.path(), Split::train, kTiny),
             validation = flowers102(folder.path(), Split::validation, kTiny),
             test = flowers102(folder.path(), Split::test, kTiny);
  expect_whole({train, validation, test}, 4 * 102);
  std::map<std::int64_t, int> of_class;
  for (const LabelledImage& image : train->images()) ++of_class[image.label];
  EXPECT_EQ(of_class.size(), 102U);
  for (const auto& [label, count] : of_class) EXPECT_EQ(count, 2) << label;
  EXPECT_TRUE(fs::exists(folder.path() / "jpg/image_00408.jpg"));
}

// ---- CUB-200-2011 ----

TEST(Cub200, ReadsThePublishedForm) {
  const fs::path folder = kPublished / "birds/CUB_200_2011";
  const auto train = cub200(folder, Split::train, kTiny), test = cub200(folder, Split::test, kTiny);
  EXPECT_THAT(train->classes(), ElementsAre("001.Black_footed_Albatross", "002.Laysan_Albatross"));
  EXPECT_THAT(seen_in(*train),
              ElementsAre("Black_Footed_Albatross_0009_34 0", "Laysan_Albatross_0002_1027 1"));
  EXPECT_THAT(seen_in(*test),
              ElementsAre("Black_Footed_Albatross_0046_18 0", "Laysan_Albatross_0003_1033 1"));
  EXPECT_EQ(seen_in(*cub200(folder, Split::validation)), seen_in(*test));
  expect_whole({train, test}, 4);
}

TEST(Cub200, AcceptsTheFolderAboveAndThoseInIt) {
  EXPECT_EQ(cub200(kPublished / "birds", Split::train)->size(), 2);
  EXPECT_EQ(cub200(kPublished / "birds/CUB_200_2011/images", Split::train)->size(), 2);
}

TEST(Cub200, SaysWhatIsMissingAndWhereToGetIt) {
  for (const char* name :
       {"images.txt", "image_class_labels.txt", "train_test_split.txt", "classes.txt", "images"}) {
    const Copy folder("birds");
    fs::remove_all(folder.path() / "CUB_200_2011" / name);
    EXPECT_THAT(complaint_about([&] { return cub200(folder.path(), Split::train); }),
                AllOf(HasSubstr(std::string("no ") + name),
                      HasSubstr("https://www.vision.caltech.edu/datasets/cub_200_2011/")));
  }
}

TEST(Cub200, NamesTheLineThatIsWrong) {
  struct Case {
    const char *file, *text, *complaint;
  };
  for (const Case& one : {Case{"images.txt", "1 a.jpg\ntwo b.jpg\n", "images.txt:2"},
                          Case{"images.txt", "1\n", "images.txt:1"},
                          Case{"images.txt", "\n", "expected images, received none"},
                          Case{"images.txt", "9 a.jpg\n", "a line for 9"},
                          Case{"image_class_labels.txt", "1 3\n2 1\n3 2\n4 2\n", "1 to 2"},
                          Case{"train_test_split.txt", "1 yes\n", "0 to 1"}}) {
    const Copy folder("birds/CUB_200_2011");
    folder.write(one.file, one.text);
    EXPECT_THAT(complaint_about([&] { return cub200(folder.path(), Split::train); }),
                HasSubstr(one.complaint));
  }
}

TEST(SmallCub200, IsReadBack) {
  const TemporaryFolder folder;
  write_cub200(folder.path() / "CUB_200_2011", {.train = 1, .test = 1, .side = 8});
  const auto train = cub200(folder.path(), Split::train, kTiny),
             test = cub200(folder.path(), Split::test, kTiny);
  EXPECT_EQ(train->classes().size(), 200U);
  EXPECT_EQ(train->size(), 200);
  expect_whole({train, test}, 400);
}

TEST(SmallSets, AreTheSameOnEveryMachine) {
  const TemporaryFolder folder;
  write_flowers102(folder.path() / "a", {.classes = 3, .side = 8});
  write_flowers102(folder.path() / "b", {.classes = 3, .side = 8});
  write_flowers102(folder.path() / "c", {.classes = 3, .side = 8, .seed = 1});
  const auto image = [&](const char* set) {
    return read_input(folder.path() / set / "jpg/image_00001.jpg");
  };
  EXPECT_EQ(image("a"), image("b"));
  EXPECT_NE(image("a"), image("c"));
}

TEST(SmallSets, NameCountsThatMakeNoSense) {
  const TemporaryFolder folder;
  EXPECT_THROW(write_flowers102(folder.path(), {.train = 0}), UsageError);
  EXPECT_THROW(write_flowers102(folder.path(), {.classes = 103}), UsageError);
  EXPECT_THROW(write_cub200(folder.path(), {.side = 7}), UsageError);
  EXPECT_THROW(write_tokens(folder.path(), {.vocabulary = 1}), UsageError);
  EXPECT_THROW(write_image_folder(folder.write("file", "") / "below", {}), WriteError);
}

}  // namespace
}  // namespace headroom::data

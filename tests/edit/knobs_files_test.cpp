// Values in YAML and JSON files: only their digits change, or it is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/edit/knobs.h"
#include "tests/support/temporary_folder.h"

namespace headroom::edit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class KnobsFiles : public ::testing::Test {
 protected:
  // The text with batch 16 and accumulation 4; "unchanged" if no file is to be written.
  std::string changed(const std::string& text, const std::string& key = "a.b",
                      const std::string& accumulation = "", const std::string& name = "c.yaml") {
    const auto file = folder_.write(name, text);
    std::vector<std::string> maps{file.string() + ":" + key + "=batch"};
    if (!accumulation.empty()) maps.push_back(file.string() + ":" + accumulation + "=accumulation");
    const Knobs knobs(maps, {"t"});
    EXPECT_THAT(
        knobs.with(*knobs.value(Quantity::batch), knobs.value(Quantity::accumulation).value_or(1))
            .files,
        IsEmpty());
    EXPECT_EQ(knobs.value(Quantity::batch), 64);
    const auto files = knobs.with(16, 4).files;
    EXPECT_EQ(read_file(file), text) << "nothing is written here";
    return files.empty() ? "unchanged" : files.begin()->second;
  }
  std::string json(const std::string& text, const std::string& key = "a.b",
                   const std::string& accumulation = "") {
    return changed(text, key, accumulation, "c.json");
  }
  std::string refusal(const std::string& text, const std::string& key = "a.b",
                      const std::string& accumulation = "", const std::string& name = "c.yaml") {
    try {
      (void)changed(text, key, accumulation, name);
    } catch (const UsageError& error) {
      return error.what();
    } catch (const InputError& error) {
      return std::string("input: ") + error.what();
    }
    return "accepted";
  }

  headroom::testing::TemporaryFolder folder_;
};

TEST_F(KnobsFiles, OnlyTheDigitsChange) {
  EXPECT_EQ(changed("# size\na:\n  x: 64   # 64\n  b:   64 # of b\n\nc: {b: 64}\n"),
            "# size\na:\n  x: 64   # 64\n  b:   16 # of b\n\nc: {b: 64}\n");
  EXPECT_EQ(changed("{a: {c: 64, b: 64}}"), "{a: {c: 64, b: 16}}");
  EXPECT_EQ(changed("a:\r\n  b: 64\r\nc: 1\r\n"), "a:\r\n  b: 16\r\nc: 1\r\n");
  EXPECT_EQ(changed("\xef\xbb\xbf"
                    "a:\n  b: 64"),
            "\xef\xbb\xbf"
            "a:\n  b: 16");
  EXPECT_EQ(changed("\xc3\xa4: \xe2\x82\xac\na: {\xc3\xb6: 1, b: 64}\n"),
            "\xc3\xa4: \xe2\x82\xac\na: {\xc3\xb6: 1, b: 16}\n");
  EXPECT_EQ(changed("%YAML 1.2\n---\na:\n  ? b\n  : 64\n...\n"),
            "%YAML 1.2\n---\na:\n  ? b\n  : 16\n...\n");
  EXPECT_EQ(changed("a:\n  s: |\n    b: 64\n  b: 64\n"), "a:\n  s: |\n    b: 64\n  b: 16\n");
}

TEST_F(KnobsFiles, QuotesAnchorsAndTagsOfTheValueStay) {
  EXPECT_EQ(changed("a: {b: \"64\", c: '64'}"), "a: {b: \"16\", c: '64'}");
  EXPECT_EQ(changed("a:\n  'b': '64'\n"), "a:\n  'b': '16'\n");
  EXPECT_EQ(changed("a:\n  b: &size 64\n"), "a:\n  b: &size 16\n");
  EXPECT_EQ(changed("a:\n  b: !!int &s  64\n"), "a:\n  b: !!int &s  16\n");
}

TEST_F(KnobsFiles, AListIsIndexedFromZero) {
  EXPECT_EQ(changed("a:\n- b: 1\n- b: 64\n", "a.1.b"), "a:\n- b: 1\n- b: 16\n");
  EXPECT_EQ(changed("- [8, 64]\n", "0.1"), "- [8, 16]\n");
}

TEST_F(KnobsFiles, AKeyMayContainDots) {
  EXPECT_EQ(changed("a.b: 64\n"), "a.b: 16\n");
  EXPECT_THAT(refusal("a.b: 64\na: {b: 64}\n"), HasSubstr("two places"));
}

TEST_F(KnobsFiles, JsonKeepsItsBlanksAndEscapes) {
  EXPECT_EQ(json("{\n\t\"s\": \"\\ud83d\\ude00 \\\"b\\\": 64\",\n\t\"a\" : {\"b\":64}\n}\n"),
            "{\n\t\"s\": \"\\ud83d\\ude00 \\\"b\\\": 64\",\n\t\"a\" : {\"b\":16}\n}\n");
  EXPECT_EQ(json("{\"a\":{\"\\u0062\":64,\"c\":[1.5e3,null,true,{}]}}"),
            "{\"a\":{\"\\u0062\":16,\"c\":[1.5e3,null,true,{}]}}");
  EXPECT_EQ(json("{\"a\":{\"b\":\"64\"}}"), "{\"a\":{\"b\":\"16\"}}");
  EXPECT_THAT(refusal("{\"a\": {\"b\": 64,}}", "a.b", "", "c.json"), HasSubstr("input: "));
}

TEST_F(KnobsFiles, AValueThatIsNoWholeNumberIsRefused) {
  for (const char* value : {"auto", "64.0", "-64", "0", "0x40", "064", "6_4", "1e2", "+64", "null",
                            "", "[64]", "${oc.env:B}", "99999999999", "1:20", "true"})
    EXPECT_THAT(refusal("a:\n  b: " + std::string(value) + "\n"), HasSubstr("a whole number"))
        << value;
  EXPECT_THAT(refusal("a:\n  b: |\n    64\n"), HasSubstr("a whole number"));
}

TEST_F(KnobsFiles, AValueThatAnAliasRefersToIsRefused) {
  EXPECT_THAT(refusal("a: {b: &s 64}\nc: *s\n"), HasSubstr("other places refer to"));
  EXPECT_THAT(refusal("c: &s 64\na: {b: *s}\n"), HasSubstr("other places refer to"));
  EXPECT_THAT(refusal("a: &d\n  b: 64\ne:\n  <<: *d\n"), HasSubstr("other places refer to"));
  EXPECT_THAT(refusal("d: &d\n  b: 64\na:\n  <<: *d\n"), HasSubstr("merged from"));
  EXPECT_EQ(changed("d: &d\n  b: 8\na:\n  <<: *d\n  b: 64\n"),
            "d: &d\n  b: 8\na:\n  <<: *d\n  b: 16\n");
}

TEST_F(KnobsFiles, ATextThatReadersInterpretDifferentlyIsRefused) {
  EXPECT_THAT(refusal("a:\n  b: 64\n  b: 64\n"), HasSubstr("two places"));
  EXPECT_THAT(refusal("a: {b: 64}\n---\na: {b: 64}\n"), HasSubstr("one document"));
  EXPECT_THAT(refusal("a: {b: 64}\n# \x04\n"), HasSubstr("control character"));
  EXPECT_THAT(refusal("# x\ra: {b: 64}\n"), HasSubstr("control character"));
  EXPECT_THAT(refusal("a: {b: 64\n"), HasSubstr("input: "));
  EXPECT_THAT(refusal("a: *none\n"), HasSubstr("input: "));
  EXPECT_THAT(refusal(""), HasSubstr("an empty file"));
  // It said "received a file without it".
  EXPECT_THAT(refusal("d: &d {b: 64}\na: *d\n"), HasSubstr("an alias on the way to it"));
  // A key that stands nowhere was said to be merged from somewhere.
  EXPECT_THAT(refusal("d: &d {c: 2}\na:\n  <<: *d\n"), Not(HasSubstr("merged from")));
  EXPECT_THAT(refusal("a: &x [*x]\n"), HasSubstr("without it")) << "a circle";
  EXPECT_THAT(refusal(std::string(100000, '[')), HasSubstr("input: "));
}

TEST_F(KnobsFiles, AMissingKeyIsNamed) {
  EXPECT_THAT(refusal("a:\n  batch_sise: 64\n", "a.batch_size"),
              AllOf(HasSubstr("a.batch_size in"), HasSubstr("the key 'batch_sise'")));
  EXPECT_THROW(Knobs({"/nowhere/c.yaml:a=batch"}, {"t"}), InputError);
}

TEST_F(KnobsFiles, AMissingAccumulationIsAddedBesideItsSiblings) {
  EXPECT_EQ(changed("a:\n  b: 64 # x\n", "a.b", "a.c"), "a:\n  c: 4\n  b: 16 # x\n");
  EXPECT_EQ(changed("a:\r\n  b: 64\r\n", "a.b", "a.c"), "a:\r\n  c: 4\r\n  b: 16\r\n");
  EXPECT_EQ(changed("- b: 64\n  d: 1\n", "0.b", "0.c"), "- c: 4\n  b: 16\n  d: 1\n");
  EXPECT_EQ(changed("a: {b: 64}\ne: {}\n", "a.b", "e.on"), "a: {b: 16}\ne: {\"on\": 4}\n");
  EXPECT_EQ(changed("a: {b: 64}\n", "a.b", "c"), "c: 4\na: {b: 16}\n");
  EXPECT_EQ(json("{\"a\":{\"b\":64}}", "a.b", "a.c"), "{\"a\":{\"c\": 4, \"b\":16}}");
  EXPECT_EQ(json("{\n  \"a\": {\n    \"b\": 64\n  }\n}\n", "a.b", "a.c"),
            "{\n  \"a\": {\n    \"c\": 4,\n    \"b\": 16\n  }\n}\n");
}

TEST_F(KnobsFiles, AMissingAccumulationWithoutAClearPlaceIsRefused) {
  EXPECT_THAT(refusal("a: {b: 64}\n", "a.b", "x.c"), HasSubstr("without it"));
  EXPECT_THAT(refusal("a: {b: 64}\nx:\n", "a.b", "x.c"), HasSubstr("without it"));
  EXPECT_THAT(refusal("d: &d {c: 2}\na:\n  <<: *d\n  b: 64\n", "a.b", "a.c"),
              HasSubstr("merged from"));
  EXPECT_THAT(refusal("x: &x {y: 1}\nz: *x\na: {b: 64}\n", "a.b", "x.c"), HasSubstr("without it"));
  EXPECT_THAT(refusal("x: [y: 1]\na: {b: 64}\n", "a.b", "x.0.c"), HasSubstr("safely"));
}

TEST_F(KnobsFiles, AFileAndAFlagMayHoldTheSameQuantity) {
  const auto file = folder_.write("c.yaml", "b: 64\n");
  const Knobs knobs({"--b=batch", file.string() + ":b=batch"}, {"t", "--b", "64"});
  const Changed changed = knobs.with(32, 1);
  EXPECT_EQ(changed.command.back(), "32");
  EXPECT_EQ(changed.files.at(std::filesystem::canonical(file)), "b: 32\n");
  EXPECT_THROW(Knobs({"--b=batch", file.string() + ":b=batch"}, {"t", "--b", "32"}), UsageError);
}

TEST_F(KnobsFiles, TheJobKeyChangesWithAnyOtherPartOfTheFile) {
  const auto job = [&](const std::string& text) {
    const auto file = folder_.write("c.yaml", text);
    return Knobs({file.string() + ":b=batch"}, {"t"}).job();
  };
  EXPECT_EQ(job("b: 64\nlayers: 12\n"), job("b: 32\nlayers: 12\n"));
  EXPECT_NE(job("b: 64\nlayers: 12\n"), job("b: 64\nlayers: 24\n"));
}

TEST_F(KnobsFiles, MappedFilesAreNamedBeforeTheyAreRead) {
  const auto file = folder_.path() / "c.yaml";
  EXPECT_THAT(mapped_files({"--b=batch", file.string() + ":a=batch", file.string() + ":c=batch"}),
              ::testing::ElementsAre(std::filesystem::weakly_canonical(file)));
}

}  // namespace
}  // namespace headroom::edit

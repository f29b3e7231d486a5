#include "headroom/data/token_file.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/base/error.h"
#include "tests/data/small_sets.h"
#include "tests/support/temporary_folder.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;
using headroom::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using Labels = TokenOptions::Labels;

const fs::path kFixtures = fs::path(HEADROOM_SOURCE_DIR) / "tests/data/fixtures/tokens";

std::vector<std::int64_t> numbers_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<std::int64_t>(),
          tensor.const_data_ptr<std::int64_t>() + tensor.numel()};
}

std::vector<std::int64_t> tokens_of(const TokenFile& file, std::int64_t index) {
  return numbers_of(file.example(index, 0)[0]);
}
std::vector<std::int64_t> labels_of(const TokenFile& file, std::int64_t index) {
  return numbers_of(file.example(index, 0)[1]);
}

// "abcd": the tokens of 16 bits, as bytes.
std::string bytes_of(const std::vector<std::uint16_t>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), 2 * tokens.size()};
}

template <typename Action>
std::string complaint_of(const Action& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no InputError";
}

std::string refusal_of(const fs::path& file, const TokenOptions& options = {.seq = 2}) {
  return complaint_of([&] { const TokenFile opened(file, options); });
}

TEST(TokenFile, CutsTheTextIntoExamples) {
  const TokenFile file(kFixtures / "narrow.bin", {.seq = 4});
  EXPECT_EQ(file.tokens(), 11);
  ASSERT_EQ(file.size(), 2);
  EXPECT_THAT(tokens_of(file, 0), ElementsAre(7, 8, 9, 0));
  EXPECT_THAT(tokens_of(file, 1), ElementsAre(300, 301, 0, 65535));
  EXPECT_EQ(labels_of(file, 1), tokens_of(file, 1));
  EXPECT_FALSE(file.vocabulary());
}

TEST(TokenFile, ReadsTheWidthAndTheMaskThatPythonWrote) {
  const TokenFile file(kFixtures / "train.bin", {.seq = 7});
  EXPECT_EQ(file.vocabulary(), 100001);
  EXPECT_EQ(file.document_end(), 0);
  EXPECT_THAT(tokens_of(file, 0), ElementsAre(7, 8, 9, 0, 300, 100000, 0));
  EXPECT_THAT(labels_of(file, 0), ElementsAre(-100, -100, 9, 0, 300, 100000, -100));
}

TEST(TokenFile, GivesTheNextTokensAsLabelsIfAsked) {
  const TokenFile file(kFixtures / "narrow.bin", {.seq = 4, .labels = Labels::next});
  EXPECT_THAT(labels_of(file, 0), ElementsAre(8, 9, 0, 300));
  const TokenFile masked(kFixtures / "train.bin", {.seq = 7, .labels = Labels::next});
  EXPECT_THAT(labels_of(masked, 0), ElementsAre(-100, 9, 0, 300, 100000, -100, -100));
}

TEST(TokenFile, SkipsTheFirstTokenOfDocumentsIfAsked) {
  const TokenFile file(kFixtures / "train.bin", {.seq = 3, .skip_document_starts = true});
  EXPECT_THAT(labels_of(file, 0), ElementsAre(-100, -100, 9));
  EXPECT_THAT(labels_of(file, 1), ElementsAre(0, -100, 100000));
  EXPECT_THAT(refusal_of(kFixtures / "narrow.bin", {.seq = 4, .skip_document_starts = true}),
              HasSubstr("a `document_end`"));
}

TEST(TokenFile, SaysWhatIsWrongWithAFile) {
  const TemporaryFolder folder;
  EXPECT_THAT(refusal_of(folder.path() / "train.bin"),
              HasSubstr("expected a file of tokens, received none"));
  EXPECT_THAT(refusal_of(folder.path()), HasSubstr("directory"));
  EXPECT_THAT(refusal_of(folder.write("a.bin", "")),
              AllOf(HasSubstr("a.bin] expected tokens, received 'an empty file'"),
                    HasSubstr("python -m headroom.tokens")));
  EXPECT_THAT(refusal_of(folder.write("a.bin", "abc")),
              HasSubstr("whole tokens of 2 bytes, received '3 bytes'"));
  EXPECT_THAT(refusal_of(folder.write("a.bin", bytes_of({1, 2, 3})), {.seq = 4}),
              AllOf(HasSubstr("4 tokens or more"), HasSubstr("received '3'"),
                    HasSubstr("a smaller `seq`")));
  EXPECT_THROW(TokenFile(folder.path() / "a.bin", {.seq = 0}), UsageError);
}

TEST(TokenFile, SaysWhatIsWrongWithTheFilesBesideIt) {
  const TemporaryFolder folder;
  const fs::path file = folder.write("a.bin", bytes_of({1, 2, 3}));
  for (const auto& [form, complaint] : std::vector<std::pair<const char*, const char*>>{
           {R"({"dtype":"float"})", R"("uint16" or "uint32" for `dtype`, received '"float"')"},
           {R"({"tokens":4})", "4 tokens, as"},
           {R"({"schema":2})", "`schema` 1"},
           {R"({"vocab_size":-1})", "a whole number for `vocab_size`"},
           {"[]", "an object"},
           {"{", "a.bin.json"}}) {
    folder.write("a.bin.json", form);
    EXPECT_THAT(refusal_of(file), HasSubstr(complaint)) << form;
  }
  folder.write("a.bin.json", "{}");
  folder.write("a.mask.bin", "\1\1");
  EXPECT_THAT(refusal_of(file), HasSubstr("a byte for each of the 3 tokens, received '2 bytes'"));
}

TEST(TokenFile, RefusesTokensThatTheVocabularyDoesNotHave) {
  const TemporaryFolder folder;
  folder.write("a.bin.json", R"({"vocab_size":3})");
  const TokenFile file(folder.write("a.bin", bytes_of({1, 2, 2, 3})), {.seq = 2});
  EXPECT_THAT(tokens_of(file, 0), ElementsAre(1, 2));
  EXPECT_THAT(complaint_of([&] { tokens_of(file, 1); }),
              HasSubstr("tokens below 3, received '3 as token 3'"));
}

// A run found them at its first step, or after hours, and a dry run never.
TEST(TokenFile, FindsATokenThatIsTooHighBeforeItIsRead) {
  const TemporaryFolder folder;
  std::vector<std::uint16_t> tokens(600'000, 7);
  tokens[550'000] = 300;
  const fs::path file = folder.write("a.bin", bytes_of(tokens));
  const auto check = [&](std::int64_t vocabulary) {
    return complaint_of([&] { TokenFile(file, {.seq = 4, .vocabulary = vocabulary}).check(); });
  };
  EXPECT_THAT(check(300), HasSubstr("tokens below 300, received '300 as token 550000'"));
  EXPECT_THAT(check(301), HasSubstr("no InputError"));
  EXPECT_EQ(TokenFile(file, {.seq = 4}).highest(), 300);
}

TEST(TokenFile, KnowsTheTokenThatHidesOthers) {
  const TemporaryFolder folder;
  const fs::path file = folder.write("a.bin", bytes_of({1, 2}));
  EXPECT_FALSE(TokenFile(file, {.seq = 2}).mask_token());
  folder.write("a.bin.json", R"({"mask_token_id":103})");
  EXPECT_EQ(TokenFile(file, {.seq = 2}).mask_token(), 103);
}

TEST(TokenFileIn, FindsTheParts) {
  const TemporaryFolder folder;
  EXPECT_THAT(complaint_of([&] { static_cast<void>(token_file_in(folder.path(), Split::train)); }),
              AllOf(HasSubstr("train.bin, received none"), HasSubstr("headroom.tokens")));
  const fs::path train = folder.write("train.bin", "ab"), val = folder.write("val.bin", "ab");
  EXPECT_EQ(token_file_in(folder.path(), Split::train), train);
  EXPECT_EQ(token_file_in(folder.path(), Split::validation), val);
  EXPECT_EQ(token_file_in(folder.path(), Split::test), std::nullopt);
  EXPECT_EQ(token_file_in(val, Split::train), val);
}

TEST(SmallTokens, AreReadBack) {
  for (const std::int64_t vocabulary : {100, 70'000}) {
    const TemporaryFolder folder;
    write_tokens(folder.path() / "deep/down",
                 {.vocabulary = vocabulary, .train = 1000, .validation = 300, .mask = true});
    const TokenFile train(folder.path() / "deep/down/train.bin", {.seq = 100}),
        val(folder.path() / "deep/down/val.bin", {.seq = 100});
    EXPECT_EQ(train.size(), 10);
    EXPECT_EQ(val.size(), 3);
    EXPECT_EQ(train.vocabulary(), vocabulary);
    EXPECT_EQ(train.document_end(), vocabulary - 1);
    EXPECT_EQ(labels_of(train, 0)[0], -100);
    EXPECT_NE(tokens_of(train, 0), tokens_of(val, 0));
    EXPECT_EQ(tokens_of(train, 9).back(), vocabulary - 1);
  }
}

}  // namespace
}  // namespace headroom::data

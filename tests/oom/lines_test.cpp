#include "headroom/oom/detail/lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/oom/detail/pattern.h"

namespace headroom::oom::detail {
namespace {

TEST(LogLines, LoseColoursAndPrefixes) {
  const auto lines = lines_of(
      "\x1b[36m(Worker pid=12, ip=10.0.0.1)\x1b[0m [rank3]: RuntimeError:   CUDA error\n"
      "vllm-1  | [1,0]<stderr>:Killed\n");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].text, "runtimeerror: cuda error");
  EXPECT_EQ(lines[0].printed, "(Worker pid=12, ip=10.0.0.1) [rank3]: RuntimeError:   CUDA error");
  EXPECT_EQ(lines[1].text, "killed");
}

// "[CUDA] out of memory": the card would be lost with the prefix.
TEST(LogLines, KeepTheNameOfWhatSpeaks) {
  EXPECT_EQ(lines_of("[12:00:01] [INFO] [CUDA] out of memory\n").at(0).text,
            "[cuda] out of memory");
  EXPECT_EQ(lines_of("[metal::malloc] no\n").at(0).text, "[metal::malloc] no");
  EXPECT_EQ(lines_of("Rank 3: [rank3]: no\n").at(0).who, "rank3");
}

TEST(LogLines, OfAProgressBarAreOneEach) {
  EXPECT_EQ(lines_of("1/3\r2/3\r3/3\n").size(), 3U);
}

TEST(LogLines, RepeatsAreOne) {
  EXPECT_EQ(lines_of("out of memory\nout of memory\nout of memory\n").size(), 1U);
}

TEST(LogLines, WrappedOnesAreJoined) {
  const auto lines = lines_of("CUDA out of\nmemory. Tried to\nallocate 2 GiB\nTraceback (most\n");
  EXPECT_EQ(joined(lines, 0), "cuda out of memory. tried to allocate 2 gib");
}

TEST(LogLines, KnowTheirLevel) {
  const auto level = [](const char* text) { return lines_of(text).at(0).level; };
  EXPECT_EQ(level("2022-01-01 10:00:00 INFO trainer: hello"), Level::debug);
  EXPECT_EQ(level("I0810 10:52:50.1 3 operator.cc:242] hello"), Level::debug);
  EXPECT_EQ(level("2018-06-08 17:26:00.9: I tensorflow/core/x.cc:680] hello"), Level::debug);
  EXPECT_EQ(level("time=2024 level=WARN source=gpu.go:400 msg=hello"), Level::warning);
  EXPECT_EQ(level("a.py:46: UserWarning: hello"), Level::warning);
  EXPECT_EQ(level("node01:1:2 [0] NCCL WARN hello"), Level::error);
  EXPECT_EQ(level("[03/07/2020-16:57:34] [E] [TRT] hello"), Level::error);
  EXPECT_EQ(level("hello"), Level::none);
}

std::vector<std::string> messages(std::string_view output) {
  std::vector<std::string> texts;
  for (const Line& line : lines_of(output))
    if (!line.is_quoted) texts.push_back(line.text);
  return texts;
}

using ::testing::ElementsAre;

TEST(LogLines, OfCodeInATracebackAreQuoted) {
  EXPECT_THAT(messages("Traceback (most recent call last):\n  File \"a.py\", line 3, in f\n"
                       "    note = 'x'\n           ^^^\nKeyError: 'y'\n"),
              ElementsAre("traceback (most recent call last):", "keyerror: 'y'"));
  EXPECT_THAT(messages("[rank1]:   File \"a.py\", line 3, in f\n[rank1]:     note = 'x'\n"
                       "[rank1]: KeyError: 'y'\n"),
              ElementsAre("keyerror: 'y'"));
  EXPECT_THAT(messages("a |File \"a.py\", line 3, in f\na |note = 'x'\na |KeyError: 'y'\n"),
              ElementsAre("a |keyerror: 'y'"))
      << "blanks may be lost";
}

TEST(LogLines, AroundAnArrowAreQuoted) {
  EXPECT_THAT(messages("    10 def f():\n--> 11     return 1 / 0\n    12 f()\nKeyError: 'y'\n"),
              ElementsAre("keyerror: 'y'"));
}

TEST(LogLines, BelowUsageAreQuoted) {
  EXPECT_THAT(messages("usage: a [-h]\n         [-b]\n\noptions:\n  -h  help\n"
                       "  long words\na: error: x\n"),
              ElementsAre("a: error: x"));
}

TEST(LogLines, OfAListOfSettingsAreQuoted) {
  EXPECT_THAT(messages("retry_on:\n  - a\n  - b\nlr: 3\n"), ElementsAre("retry_on:", "lr: 3"));
  EXPECT_THAT(messages("errors:\n  - a\n"), ElementsAre("errors:", "- a"));
}

TEST(LogLines, OfATestsSummaryAreItsMessage) {
  EXPECT_THAT(messages("FAILED tests/a.py::test_b - KeyError: 'y'\n"),
              ElementsAre("keyerror: 'y'"));
  EXPECT_THAT(messages("tests/a.py::test_b PASSED\n"), ElementsAre());
}

TEST(LogPattern, FindsNumbersAmountsAndGaps) {
  EXPECT_TRUE(matches("oom when", "an oom when allocating"));
  EXPECT_TRUE(matches("size # failed", "of size 118,497,280 failed."));
  EXPECT_TRUE(matches("allocate ~ of", "allocate 2.5 gib of"));
  EXPECT_TRUE(matches("allocate ~", "allocate 12 bytes"));
  EXPECT_FALSE(matches("allocate ~", "allocate 12 nodes"));
  EXPECT_FALSE(matches("allocate ~", "allocate 12 m"));
  EXPECT_TRUE(matches("a*b*c", "a x b x c"));
  EXPECT_FALSE(matches("a*c*b", "a x b x c"));
  EXPECT_FALSE(matches("out*memory", "out" + std::string(300, ' ') + "memory"));
}

// "el0004" was found in a hash, "errno=12" in errno=128, "npu" in "input".
TEST(LogPattern, StandsForWholeWords) {
  EXPECT_FALSE(matches("el0004", "sha256:8fel0004"));
  EXPECT_FALSE(matches("el0004", "el00041"));
  EXPECT_FALSE(matches("errno=12", "errno=128"));
  EXPECT_FALSE(matches("npu*out of memory", "input ran out of memory"));
  EXPECT_TRUE(matches("npu*out of memory", "npu 3 ran out of memory"));
  EXPECT_TRUE(matches("errno=12", "(errno=12)"));
}

TEST(LogPattern, AStarAtAnEndIsTheRestOfAWord) {
  EXPECT_TRUE(matches("oom_kill event*", "2 oom_kill events"));
  EXPECT_TRUE(matches("*outofmemory", "hiperroroutofmemory"));
  EXPECT_FALSE(matches("*outofmemory", "outofmemoryerror"));
}

TEST(LogPattern, ANumberIsNeverAPartOfALongerOne) {
  EXPECT_FALSE(matches("cublas*error 3*", "cublas error 30"));
  EXPECT_FALSE(matches("error 2*memory", "error 12 memory"));
  EXPECT_TRUE(matches("error 2*memory", "error 2: memory"));
}

TEST(LogPattern, ThatIsEmptyIsNeverFound) {
  EXPECT_FALSE(matches("", "anything"));
  EXPECT_FALSE(matches("*", "anything"));
}

TEST(LogPattern, TriesALaterBeginningWhenTheFirstFails) {
  EXPECT_TRUE(matches("error #: out", "error 1: no; error 2: out"));
}

}  // namespace
}  // namespace headroom::oom::detail

// Whatever a program prints, the detector answers: damaged logs, binary data, endless lines.
#include <gtest/gtest.h>

#include <random>

#include "tests/oom/corpus.h"
#include "tests/support/garbage.h"

namespace headroom::testing {
namespace {

void expect_an_answer(const std::string& text) {
  const oom::Judgement judgement =
      oom::classify({.text = text, .type_names = {}, .exit_code = 1, .signal = {}, .host = {}});
  EXPECT_GE(judgement.confidence, 0);
  EXPECT_LE(judgement.confidence, 1);
  EXPECT_LE(judgement.evidence.size(), 1000U);
}

TEST(OomGarbage, DamagedLogsAreJudged) {
  std::mt19937 random(7);  // NOLINT: the same damage each time
  const auto& failures = failure_texts();
  for (int i = 0; i < 3000; ++i) {
    const std::string& text = failures[random() % failures.size()].text;
    const std::string& other = failures[random() % failures.size()].text;
    expect_an_answer(mutated(text, other, random));
  }
}

TEST(OomGarbage, RandomBytesAreNoOom) {
  std::mt19937 random(11);  // NOLINT: the same bytes each time
  for (int i = 0; i < 200; ++i) {
    std::string bytes(random() % 4096, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    const oom::Judgement judgement =
        oom::classify({.text = bytes, .type_names = {}, .exit_code = {}, .signal = {}, .host = {}});
    EXPECT_EQ(judgement.verdict, oom::Verdict::unknown);
  }
}

TEST(OomGarbage, AnEndlessLineIsJudged) {
  expect_an_answer(std::string(std::size_t{8} << 20, 'm'));
  std::string repeated;
  for (int i = 0; i < 20000; ++i) repeated += "out of memor ";
  expect_an_answer(repeated);
}

}  // namespace
}  // namespace headroom::testing

// Sentences that users read every day: each states a fact and says what to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/headroom_process.h"

namespace headroom::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A command that runs out of memory with more than 32 rows, and is tried again with 32.
Outcome tried_again(Arguments options, const Arguments& more = {}) {
  const std::string out_of_memory =
      "echo $@; test $2 -le 32 || { echo 'RuntimeError: CUDA error: out of memory' >&2; exit 1; }";
  options.insert(options.begin(), {"run", "--gpus", "cpu", "--map", "--batch-size=batch"});
  options.insert(options.end(), {"--", "sh", "-c", out_of_memory, "train", "--batch-size", "64"});
  options.insert(options.end(), more.begin(), more.end());
  return World().headroom(options);
}

// "16 x 4 instead of 32 x 2", of a program that accumulates nothing.
TEST(Sentence, OfABatchWithoutAccumulationNamesOneFactor) {
  const Outcome outcome = tried_again({"--let-batch-change"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("now 32 instead of 64"), Not(HasSubstr(" x "))));
  EXPECT_EQ(outcome.out, "--batch-size 64\n--batch-size 32\n");
}

TEST(Sentence, OfAKeptEffectiveBatchNamesBothFactors) {
  const Outcome outcome = tried_again({"--map", "--accum=accumulation"}, {"--accum", "1"});
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("no memory figures found, so at most half of 64"),
                                 HasSubstr("now 32 x 2 instead of 64 x 1")));
  EXPECT_EQ(outcome.out, "--batch-size 64 --accum 1\n--batch-size 32 --accum 2\n");
}

// "trying again with train.bs 32"
TEST(Sentence, OfAChangedKeyHasTheCommandsSpelling) {
  const Outcome outcome = World().headroom(
      {"run", "--gpus", "cpu", "--map", "train.bs=batch", "--let-batch-change", "--", "sh", "-c",
       "test ${1#*=} -le 32 || { echo 'RuntimeError: CUDA error: out of memory'; exit 1; }", "x",
       "train.bs=64"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("trying again with train.bs=32: "));
}

// "try the place that it is merged from (<<)", of a key that is nowhere.
TEST(Sentence, OfAMissingKeyMentionsNoMerge) {
  const World world;
  const auto file = world.folder().write("c.yaml", "a:\n  b: 3\n");
  const Outcome outcome =
      world.headroom({"run", "--gpus", "cpu", "--map", file.string() + ":a.c=batch", "--", "true"});
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("expected the key a.c"), Not(HasSubstr("<<"))));
}

// It said "nobody" for the holder of the memory.
TEST(Sentence, OfAFullCardNamesMemoryOfNoListedProcess) {
  World world;
  world.driver({{"cards", {{{"total", "24GiB"}, {"used", "20GiB"}}}}});
  for (const Arguments& asked :
       {Arguments{"who"}, Arguments{"pick", "--need", "10GiB"},
        Arguments{"run", "--need", "10GiB", "--timeout", "0s", "--", "true"}}) {
    const Outcome outcome = world.headroom(asked);
    EXPECT_THAT(outcome.out + outcome.err,
                AllOf(HasSubstr("20.00 GiB"), HasSubstr("no listed process"),
                      HasSubstr("headroom clean explains"), Not(HasSubstr("nobody"))))
        << asked[0];
  }
}

TEST(Sentence, OfTheCpuSaysThatNoMemoryIsReserved) {
  const Outcome outcome =
      World().headroom({"run", "--gpus", "cpu", "--need", "10GiB", "--", "true"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("--need has no effect on the CPU"));
}

class Slip : public ::testing::TestWithParam<std::pair<Arguments, const char*>> {};

TEST_P(Slip, IsExplained) {
  const auto& [arguments, sentence] = GetParam();
  const Outcome outcome = World().headroom(arguments);
  EXPECT_EQ(outcome.exit_code, 64);
  EXPECT_THAT(outcome.err, HasSubstr(sentence));
}

INSTANTIATE_TEST_SUITE_P(
    Sentences, Slip,
    ::testing::Values(
        std::pair(Arguments{"run"}, "no command given; try headroom run"),
        std::pair(Arguments{"run", "--end-stalled", "--", "true"}, "--end-stalled needs --stall"),
        std::pair(Arguments{"estimate", "gpt2", "--seq", "abc"}, "received 'abc'"),
        std::pair(Arguments{"estimate", "gpt2", "--dtype", "fp8"}, "float32, bfloat16, float16"),
        std::pair(Arguments{"fit", "gpt2", "--gpus", "RTX 4090", "--margin", "1.5"}, "--margin"),
        // "--need: At Most 1 required but received 2"
        std::pair(Arguments{"pick", "--need", "1GiB", "--need", "2GiB"},
                  "--need: expected once, received 2 times"),
        std::pair(Arguments{"pick", "--need", "-5GiB"}, "headroom: --need: expected a size"),
        std::pair(Arguments{"pick", "--need", "50%"}, "headroom: --need: expected a size"),
        std::pair(Arguments{"lease"}, "lease: expected one of list, end, received none"),
        // Taken without a word, though nothing could ever have been changed.
        std::pair(Arguments{"run", "--gpus", "cpu", "--map", "--acc=accumulation", "--", "true",
                            "--acc", "2"},
                  "--map: expected a batch beside the accumulation")));

TEST(Help, ReadsAtOnce) {
  EXPECT_THAT(World().headroom({"help"}).out,
              HasSubstr("Show the leases, processes and waiting jobs of each GPU"));
  EXPECT_THAT(World().headroom({"run", "--help"}).out,
              HasSubstr("Largest number of tries after the first"));
}

TEST(Sentence, OfAPolicyNamesTheModelItChose) {
  EXPECT_THAT(World()
                  .headroom({"estimate", "llama-2-13b@40GiB,llama-2-7b", "--policy", "variant",
                             "--gpus", "sim:2x24GiB", "--quick"})
                  .out,
              HasSubstr("llama-2-7b is chosen for every card"));
}

}  // namespace
}  // namespace headroom::testing

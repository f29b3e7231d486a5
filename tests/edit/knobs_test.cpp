// Values of a command: found where they are, changed alone.

#include "headroom/edit/knobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/edit/shell_words.h"

namespace headroom::edit {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Words = std::vector<std::string>;

const Words kFlags{"--batch-size=batch", "--accum=accumulation"};

Words words(const std::string& text) {
  return split_words(text);
}

// The command with other values, as one text.
std::string changed(const Words& maps, const Words& command, long long batch = 16,
                    long long accumulation = 4) {
  return join(Knobs(maps, command).with(batch, accumulation).command, "|");
}
std::string changed(const Words& maps, const std::string& command, long long batch = 16,
                    long long accumulation = 4) {
  return join(Knobs(maps, words(command)).with(batch, accumulation).command, " ");
}

std::string refusal(const Words& maps, const Words& command) {
  try {
    const Knobs knobs(maps, command);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}
std::string refusal(const Words& maps, const std::string& command) {
  return refusal(maps, words(command));
}

// The changed shell text that a shell would get.
std::string in_shell(const std::string& text, const Words& maps = kFlags) {
  return Knobs(maps, {"bash", "-c", text}).with(16, 4).command[2];
}

// The command with "--resume out/2.pt".
std::string resumed(const Words& command, const Words& maps = kFlags) {
  const Knobs knobs(maps, command);
  try {
    return join(knobs.with_arguments(command, {"--resume", "out/2 b.pt"}), "|");
  } catch (const UsageError& error) {
    return error.what();
  }
}

// ---- Arguments ----

TEST(Knobs, FindsAFlagAndItsValueInTwoWordsOrOne) {
  EXPECT_EQ(changed(kFlags, "python t.py --batch-size 64 --accum 1 --lr 64"),
            "python t.py --batch-size 16 --accum 4 --lr 64");
  EXPECT_EQ(changed(kFlags, "python t.py --accum=1 --batch-size=64 64"),
            "python t.py --accum=4 --batch-size=16 64");
  const Knobs knobs(kFlags, words("t --batch-size 64 --accum 2"));
  EXPECT_EQ(knobs.value(Quantity::batch), 64);
  EXPECT_EQ(knobs.value(Quantity::accumulation), 2);
  EXPECT_EQ(knobs.name(Quantity::batch), "--batch-size");
  EXPECT_THAT(knobs.assumptions(), IsEmpty());
}

TEST(Knobs, AShortFlagMayContainItsValue) {
  const Words maps{"-b=batch", "-a=accumulation"};
  EXPECT_EQ(changed(maps, "t -b64 -a 1"), "t -b16 -a 4");
  EXPECT_EQ(changed(maps, "t -b=64 -a1 -bs 64"), "t -b=16 -a4 -bs 64");
  EXPECT_EQ(changed({"-batch=batch"}, "t -batch=64", 16, 1), "t -batch=16");
}

TEST(Knobs, AFlagMatchesOnlyItsExactName) {
  EXPECT_THAT(refusal({"--batch-size=batch"}, "t --batch_size 64"),
              AllOf(HasSubstr("--batch-size"), HasSubstr("try \"--batch_size=batch\"")));
  EXPECT_THAT(refusal({"--batch=batch"}, "t --batch-size 64"), HasSubstr("--batch-size=batch"));
}

TEST(Knobs, TheLastOfARepeatedFlagCountsAsInArgparse) {
  const Knobs knobs(kFlags, words("t --batch-size 32 --accum 1 --batch-size 64"));
  EXPECT_EQ(knobs.value(Quantity::batch), 64);
  EXPECT_EQ(join(knobs.with(16, 4).command, " "), "t --batch-size 32 --accum 4 --batch-size 16");
  EXPECT_THAT(knobs.assumptions(), ElementsAre(HasSubstr("occurs 2 times in the command")));
}

TEST(Knobs, TheSameFlagOfAnotherProgramDoesNotCount) {
  EXPECT_EQ(changed({"-b=batch"}, "python -b t.py -b 64", 16, 1), "python -b t.py -b 16");
}

TEST(Knobs, ArgumentsAfterTwoDashesAreFound) {
  EXPECT_EQ(changed(kFlags, "launch t.py -- --batch-size 64 --accum 1"),
            "launch t.py -- --batch-size 16 --accum 4");
}

TEST(Knobs, AValueThatIsNoWholeNumberIsRefused) {
  for (const char* value : {"auto", "64.0", "-1", "0", "1e3", "+64", "6_4", "99999999999999999999"})
    EXPECT_THAT(refusal({"--b=batch"}, {"t", "--b", value}),
                AllOf(HasSubstr("a whole number from 1 to"), HasSubstr(value)));
  EXPECT_THAT(refusal({"--b=batch"}, "t --b"), HasSubstr("received ''"));
  EXPECT_THAT(refusal({"--b=batch"}, "t --b="), HasSubstr("received ''"));
  EXPECT_THAT(refusal({"--b=batch"}, {"bash", "-c", "t --b $BS"}), HasSubstr("env:NAME=batch"));
}

TEST(Knobs, KeyValueArgumentsAreFoundWithTheirPluses) {
  const Words maps{"training.batch_size=batch", "training.accum=accumulation"};
  EXPECT_EQ(changed(maps, "t training.batch_size=64 +training.accum=1 x.training.batch_size=64"),
            "t training.batch_size=16 +training.accum=4 x.training.batch_size=64");
  EXPECT_EQ(changed(maps, "t ++training.batch_size=64 training.accum=1"),
            "t ++training.batch_size=16 training.accum=4");
  EXPECT_THAT(refusal({"batch_size=batch"}, "t training.batch_size=64"),
              HasSubstr("expected batch_size in the command"))
      << "a part of a key is not guessed";
  EXPECT_THAT(refusal(maps, "t training.batch_size=32,64"), HasSubstr("32,64"));
}

TEST(Knobs, AnUnchangedValueKeepsItsSpelling) {
  EXPECT_EQ(changed(kFlags, "t --batch-size 064 --accum 01", 64, 1),
            "t --batch-size 064 --accum 01");
  EXPECT_EQ(changed(kFlags, "t --batch-size 064 --accum 01", 32, 1),
            "t --batch-size 32 --accum 01");
}

// ---- A shell's text ----

TEST(Knobs, OnlyTheWordInsideAShellTextChanges) {
  EXPECT_EQ(in_shell("cd /x &&  python t.py --batch-size  64 --accum 1 2>&1 | tee 'a  b'"),
            "cd /x &&  python t.py --batch-size  16 --accum 4 2>&1 | tee 'a  b'");
  EXPECT_EQ(changed(kFlags, {"sh", "-lc", "t --batch-size=64 --accum=1"}),
            "sh|-lc|t --batch-size=16 --accum=4");
  EXPECT_EQ(changed(kFlags, {"nice", "/bin/bash", "-eu", "-o", "pipefail", "-c",
                             "t --batch-size \"64\" --accum '1'"}),
            "nice|/bin/bash|-eu|-o|pipefail|-c|t --batch-size \"16\" --accum '4'");
}

TEST(Knobs, ANestedShellTextIsSearched) {
  EXPECT_EQ(in_shell("bash -c \"t --batch-size 64 --accum \\\"1\\\"\""),
            "bash -c \"t --batch-size 16 --accum \\\"4\\\"\"");
}

TEST(Knobs, ArgumentsAfterAShellTextBelongToTheShell) {
  EXPECT_EQ(changed(kFlags, {"bash", "-c", "t \"$@\"", "_", "--batch-size", "64", "--accum", "1"}),
            "bash|-c|t \"$@\"|_|--batch-size|16|--accum|4");
}

TEST(Knobs, CommentsAndHereDocumentsOfAShellTextAreLeftAlone) {
  EXPECT_EQ(in_shell("t --batch-size 64 --accum 1 # --batch-size 8"),
            "t --batch-size 16 --accum 4 # --batch-size 8");
  EXPECT_EQ(in_shell("echo '--batch-size 8'; t --batch-size 64 --accum 1"),
            "echo '--batch-size 8'; t --batch-size 16 --accum 4");
  EXPECT_EQ(in_shell("t --batch-size 64 --accum 1 <<X\n--batch-size 8\nX\n"),
            "t --batch-size 16 --accum 4 <<X\n--batch-size 8\nX\n");
  EXPECT_EQ(changed(kFlags, {"python", "-c", "print('--batch-size 8')", "--batch-size", "64"}),
            "python|-c|print('--batch-size 8')|--batch-size|16|--accum|4");
}

TEST(Knobs, TwoProgramsOfOneShellTextMustAgree) {
  EXPECT_EQ(in_shell("a --batch-size 64 --accum 1; b --accum 1 --batch-size 64"),
            "a --batch-size 16 --accum 4; b --accum 4 --batch-size 16");
  EXPECT_THAT(
      refusal(kFlags, {"sh", "-c", "a --batch-size 64 --accum 1; b --batch-size 32 --accum 1"}),
      AllOf(HasSubstr("64"), HasSubstr("32"), HasSubstr("the same value")));
}

TEST(Knobs, AValueWithQuotesInTheMiddleIsRefused) {
  EXPECT_THAT(refusal(kFlags, {"sh", "-c", "t --batch-size 6\"4\""}), HasSubstr("in one piece"));
}

TEST(Knobs, ATextThatNoShellParsesIsNotSearched) {
  EXPECT_THAT(refusal(kFlags, {"sh", "-c", "t --batch-size 64 'open"}), HasSubstr("without it"));
}

// ---- Variables ----

class KnobsVariables : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv("HEADROOM_TEST_BS", "64", 1); }
  void TearDown() override { ::unsetenv("HEADROOM_TEST_BS"); }
};

TEST_F(KnobsVariables, AreReadFromOurEnvironment) {
  const Knobs knobs({"env:HEADROOM_TEST_BS=batch", "env:HEADROOM_TEST_AC=accumulation"}, {"t"});
  EXPECT_EQ(knobs.value(Quantity::batch), 64);
  EXPECT_THAT(knobs.with(64, 1).environment, IsEmpty());
  EXPECT_THAT(knobs.with(16, 4).environment,
              ElementsAre("HEADROOM_TEST_BS=16", "HEADROOM_TEST_AC=4"));
  EXPECT_THAT(knobs.with(16, 4).command, ElementsAre("t"));
}

TEST_F(KnobsVariables, AreReadFromTheCommandIfItSetsThem) {
  const Words maps{"env:HEADROOM_TEST_BS=batch"};
  EXPECT_EQ(changed(maps, "env -u X A=1 HEADROOM_TEST_BS=8 t", 4, 1),
            "env -u X A=1 HEADROOM_TEST_BS=4 t");
  EXPECT_EQ(in_shell("A=1 HEADROOM_TEST_BS=8 t x=8", maps), "A=1 HEADROOM_TEST_BS=16 t x=8");
  EXPECT_EQ(in_shell("export HEADROOM_TEST_BS=8; t", maps), "export HEADROOM_TEST_BS=16; t");
  EXPECT_THAT(Knobs(maps, words("env HEADROOM_TEST_BS=8 t")).with(4, 1).environment, IsEmpty());
  EXPECT_EQ(Knobs(maps, words("t HEADROOM_TEST_BS=8")).value(Quantity::batch), 64)
      << "an argument of the program is no variable";
}

TEST_F(KnobsVariables, AreNamedIfMissing) {
  EXPECT_THAT(refusal({"env:HEADROOM_TEST_NONE=batch"}, "t"),
              AllOf(HasSubstr("received an environment without it"),
                    HasSubstr("export HEADROOM_TEST_NONE=32")));
}

// ---- One quantity in several places ----

TEST_F(KnobsVariables, ChangeTogetherWithAllPlacesOfTheirQuantity) {
  const Words maps{"--b=batch", "x.b=batch", "env:HEADROOM_TEST_BS=batch"};
  const Knobs knobs(maps, words("t --b 64 x.b=64"));
  EXPECT_EQ(join(knobs.with(8, 1).command, " "), "t --b 8 x.b=8");
  EXPECT_THAT(knobs.with(8, 1).environment, ElementsAre("HEADROOM_TEST_BS=8"));
  EXPECT_EQ(knobs.name(Quantity::batch), "--b and x.b and env:HEADROOM_TEST_BS");
  EXPECT_THAT(refusal(maps, "t --b 64 x.b=32"),
              AllOf(HasSubstr("--b 64 and x.b 32"), HasSubstr("the same value")));
}

TEST(Knobs, APlaceHasOnlyOneQuantity) {
  EXPECT_THAT(refusal({"--b=batch", "--b=accumulation"}, "t --b 1"), HasSubstr("both"));
  EXPECT_EQ(changed({"--b=batch", "--b=batch"}, "t --b 64", 8, 1), "t --b 8");
}

// ---- What is nowhere given ----

TEST(Knobs, AMissingAccumulationIsOneAndIsAddedInTheFormOfTheBatch) {
  const Knobs knobs(kFlags, words("python t.py --batch-size 64 out"));
  EXPECT_EQ(knobs.value(Quantity::accumulation), 1);
  EXPECT_THAT(
      knobs.assumptions(),
      ElementsAre("--accum is not given: it counts as 1, and is added when it has to change"));
  EXPECT_EQ(join(knobs.with(64, 1).command, " "), "python t.py --batch-size 64 out");
  EXPECT_EQ(join(knobs.with(16, 4).command, " "), "python t.py --batch-size 16 --accum 4 out");
  EXPECT_EQ(changed(kFlags, "t --batch-size=64 x"), "t --batch-size=16 --accum=4 x");
  EXPECT_EQ(changed({"b=batch", "++a=accumulation"}, "t b=64 x"), "t b=16 ++a=4 x");
  EXPECT_EQ(changed({"b=batch", "--a=accumulation"}, "t b=64 x"), "t b=16 x --a 4");
}

TEST(Knobs, AMissingAccumulationIsAddedInsideAShellText) {
  EXPECT_EQ(in_shell("t --batch-size '64' > log; echo done"),
            "t --batch-size '16' --accum 4 > log; echo done");
  EXPECT_EQ(in_shell("t b=64", {"b=batch", "--a=accumulation"}), "t b=16 --a 4");
  EXPECT_THAT(refusal({"b=batch", "--a=accumulation"}, {"sh", "-c", "t b=64 | tee x"}),
              AllOf(HasSubstr("in which its position is unclear"), HasSubstr("--a 1")));
  EXPECT_EQ(in_shell("t b=64 # x", {"b=batch", "--a=accumulation"}), "t b=16 --a 4 # x");
  EXPECT_EQ(in_shell("t b=64 2>&1", {"b=batch", "--a=accumulation"}), "t b=16 2>&1 --a 4");
}

TEST(Knobs, AProgramOfAShellTextGetsBothOrNone) {
  EXPECT_THAT(refusal(kFlags, Words{"bash", "-c", "a --batch-size 8 --accum 1; b --batch-size 8"}),
              AllOf(HasSubstr("--batch-size and --accum"), HasSubstr("only one of them")));
  EXPECT_THAT(refusal(kFlags, Words{"bash", "-c", "a --batch-size 8; b --accum 2"}),
              HasSubstr("only one of them"));
}

// ---- More arguments ----

TEST(Knobs, AddedArgumentsComeLast) {
  EXPECT_EQ(resumed({"python", "t.py", "--batch-size", "8"}),
            "python|t.py|--batch-size|8|--resume|out/2 b.pt");
  EXPECT_EQ(resumed({"./train.sh"}, {}), "./train.sh|--resume|out/2 b.pt");
}

TEST(Knobs, AddedArgumentsInAShellTextGoToTheProgramThatTrains) {
  EXPECT_EQ(resumed({"bash", "-c", "cd x && t --batch-size 8 | tee log"}),
            "bash|-c|cd x && t --batch-size 8 --resume 'out/2 b.pt' | tee log");
  EXPECT_EQ(resumed({"bash", "-c", "t > log 2>&1"}, {}),
            "bash|-c|t > log 2>&1 --resume 'out/2 b.pt'");
}

TEST(Knobs, AShellTextThatPassesItsArgumentsOnGetsTheAddedOnes) {
  EXPECT_EQ(resumed({"bash", "-c", "ulimit -c 0; exec \"$@\"", "bash", "python", "t.py"}, {}),
            "bash|-c|ulimit -c 0; exec \"$@\"|bash|python|t.py|--resume|out/2 b.pt");
}

TEST(Knobs, AddedArgumentsWithoutAClearProgramAreRefused) {
  for (const char* text : {"a && b", "a --batch-size 8 --accum 1; b --batch-size 8 --accum 1"}) {
    const bool mapped = std::string(text).find("batch") != std::string::npos;
    EXPECT_THAT(resumed({"bash", "-c", text}, mapped ? kFlags : Words{}),
                AllOf(HasSubstr("[--resume-arg]"), HasSubstr("more than one candidate")))
        << text;
  }
}

TEST(Knobs, AMissingBatchIsAnError) {
  EXPECT_THAT(refusal(kFlags, "t --accum 1"),
              AllOf(HasSubstr("--map --batch-size=batch"), HasSubstr("without it"),
                    HasSubstr("--batch-size 32")));
  EXPECT_THAT(refusal({"a.b=batch"}, "t"), HasSubstr("a.b=32"));
}

TEST(Knobs, WithoutMapsNothingChanges) {
  const Knobs knobs({}, words("t x"));
  EXPECT_FALSE(knobs.has(Quantity::batch) || knobs.has(Quantity::accumulation));
  EXPECT_EQ(knobs.value(Quantity::batch), std::nullopt);
  EXPECT_EQ(knobs.with(1, 1).command, words("t x"));
}

// ---- Maps that are none ----

TEST(Knobs, AnInvalidMapIsRefusedWithTheFormsAndTheNearestWord) {
  for (const char* map :
       {"", "--batch-size", "--batch-size=", "=batch", "env:=batch", "f.yaml:=batch", ":a=batch",
        "f.yaml:a..b=batch", "--=batch", "--a b=batch", "+++k=batch"})
    EXPECT_THAT(refusal({map}, "t"), HasSubstr("\"--flag=batch\", \"key=batch\", "
                                               "\"FILE:a.b=batch\" or \"env:NAME=batch\""))
        << map;
  EXPECT_THAT(refusal({"--b=bacth"}, "t"), HasSubstr("try \"--b=batch\""));
  EXPECT_THAT(refusal({"--a=accum"}, "t"), HasSubstr("try \"--a=accumulation\""));
  EXPECT_THAT(refusal({"--batch-size"}, "t"), HasSubstr("try \"--batch-size=batch\""));
}

// ---- What is remembered of it ----

TEST(Knobs, TheJobKeyIsTheCommandWithoutItsValues) {
  const Knobs one(kFlags, words("t --batch-size 64 --accum 1 'a b'"));
  const Knobs two(kFlags, words("t --batch-size 32 --accum 2 'a b'"));
  EXPECT_EQ(one.job(), "cd " + quoted(std::filesystem::current_path().string()) +
                           " && t --batch-size {batch} --accum {accumulation} 'a b'");
  EXPECT_EQ(one.job(), two.job());
  EXPECT_NE(one.job(), Knobs(kFlags, words("t --batch-size 64 --accum 1 c")).job());
}

}  // namespace
}  // namespace headroom::edit

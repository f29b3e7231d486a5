// Help, mistyped commands and options, outputs that cannot be written, and shell completion.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/headroom_process.h"

namespace headroom::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kCommands{
    "gpus",  "pick",   "run",   "attach", "history",  "log",        "queue",
    "who",   "lease",  "clean", "doctor", "estimate", "fit",        "plan",
    "cards", "models", "trace", "oom",    "version",  "completion", "top"};

// ---- Help ----

class EachCommand : public ::testing::TestWithParam<std::string> {};

TEST_P(EachCommand, HasHelpWithExamples) {
  const World world;
  const Outcome outcome = world.headroom({GetParam(), "--help"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
  const std::size_t examples = outcome.out.find("Examples:\n");
  ASSERT_NE(examples, std::string::npos) << outcome.out;
  EXPECT_THAT(outcome.out.substr(examples), HasSubstr("headroom " + GetParam()));
}

TEST_P(EachCommand, HasHelpOfAtMost100Columns) {
  for (const std::string& line : lines_of(World().headroom({GetParam(), "--help"}).out))
    EXPECT_LE(line.size(), 100U) << line;
}

TEST_P(EachCommand, NamesTheNearestOptionOfASlip) {
  const World world;
  const Outcome outcome = world.headroom({GetParam(), "--hlep"});
  EXPECT_EQ(outcome.exit_code, 64);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("unknown option '--hlep'"), HasSubstr("'--help'"),
                                 HasSubstr("headroom " + GetParam() + " --help")));
}

INSTANTIATE_TEST_SUITE_P(Of, EachCommand, ::testing::ValuesIn(kCommands),
                         [](const auto& each) { return each.param; });

TEST(Help, ListsEveryCommand) {
  const World world;
  const Outcome outcome = world.headroom({"--help"});
  EXPECT_EQ(outcome.exit_code, 0);
  for (const std::string& command : kCommands)
    EXPECT_THAT(outcome.out, HasSubstr("\n  " + command + " "));
}

// ---- Slips ----

TEST(UnknownCommand, NamesTheNearest) {
  const World world;
  const Outcome outcome = world.headroom({"gpsu"});
  EXPECT_EQ(outcome.exit_code, 64);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err,
            "headroom: unknown command 'gpsu'; did you mean 'gpus'? (headroom --help)\n");
}

TEST(UnknownCommand, OfALaterVersionIsUnknown) {
  const World world;
  const std::string help = world.headroom({"--help"}).out;
  for (const char* later : {"swarm", "start", "launch"}) {
    const Outcome outcome = world.headroom({later, "7B"});
    EXPECT_EQ(outcome.exit_code, 64) << later;
    EXPECT_THAT(outcome.err, HasSubstr("; try headroom ")) << "what does its work until then";
    EXPECT_THAT(help, Not(HasSubstr(std::string("\n  ") + later + " ")));
  }
}

TEST(UnknownCommand, OfAGroupNamesThoseItHas) {
  const Outcome outcome = World().headroom({"config", "show"});
  EXPECT_EQ(outcome.exit_code, 64);
  EXPECT_THAT(outcome.err, HasSubstr("unknown command 'config show'; try explain"));
}

// "for `batch`": the option has another name.
TEST(Number, OutOfRangeNamesItsOption) {
  EXPECT_THAT(World().headroom({"estimate", "gpt2", "--batch", "0"}).err,
              HasSubstr("at least 1 for --batch, received '0'"));
}

TEST(UnknownOption, NamesTheNearest) {
  const World world;
  EXPECT_THAT(world.headroom({"gpus", "--jsn"}).err, HasSubstr("did you mean '--json'?"));
  EXPECT_THAT(world.headroom({"pick", "--ned=1GiB"}).err, HasSubstr("did you mean '--need'?"));
  EXPECT_THAT(world.headroom({"--gpu", "all"}).err, HasSubstr("did you mean '--gpus'?"));
  EXPECT_EQ(world.headroom({"gpus", "-j"}).exit_code, 64);
}

TEST(UnknownCard, NamesTheNearest) {
  const World world;
  for (const Arguments& command : {Arguments{"cards", "RTX 409O"},
                                   {"gpus", "--gpus", "RTX 409O"},
                                   {"--gpus", "sim:2xRTX 409O"}}) {
    const Outcome outcome = world.headroom(command);
    EXPECT_EQ(outcome.exit_code, 64);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr("RTX 4090"));
  }
}

TEST(Help, IsACommandToo) {
  const World world;
  EXPECT_EQ(world.headroom({"help"}).out, world.headroom({"--help"}).out);
  EXPECT_EQ(world.headroom({"help", "run"}).out, world.headroom({"run", "--help"}).out);
  EXPECT_THAT(world.headroom({"help", "gpsu"}).err, HasSubstr("did you mean 'gpus'?"));
}

// It said "Could not convert: --count = two".
TEST(Number, ThatIsInvalidIsRefusedInWords) {
  const World world;
  const Outcome outcome = world.headroom({"pick", "--need", "1GiB", "--count", "two"});
  EXPECT_EQ(outcome.exit_code, 64);
  EXPECT_THAT(outcome.err, HasSubstr("--count: expected a number, received 'two'"));
}

TEST(ExtraArgument, IsRefused) {
  const World world;
  const Outcome outcome = world.headroom({"gpus", "everything"});
  EXPECT_EQ(outcome.exit_code, 64);
  EXPECT_THAT(outcome.err, HasSubstr("unexpected argument 'everything'"));
}

// `headroom --gpus sim:... gpus` once looked at the real machine, without a word.
TEST(GpusOption, AppliesBeforeTheCommandToo) {
  const World world;
  const Outcome outcome = world.headroom({"--gpus", "sim:2x24GiB", "gpus", "--json"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.json()["gpus"].size(), 2U);
}

TEST(GpusVariable, ThatIsInvalidIsRefusedLikeTheOption) {
  World world;
  world.set("HEADROOM_GPUS", "sim:apples");
  const Outcome outcome = world.headroom({"gpus"});
  EXPECT_EQ(outcome.exit_code, 64);
  EXPECT_EQ(lines_of(outcome.err).size(), 1U);
}

// ---- Where output goes ----

TEST(FullDisk, Is73ForEverythingThatPrints) {
  World world;
  world.standard_output("/dev/full");
  for (const Arguments& command : {Arguments{},
                                   {"gpus"},
                                   {"gpus", "--json"},
                                   {"cards"},
                                   {"models"},
                                   {"version"},
                                   {"completion", "bash"},
                                   {"--help"},
                                   {"--version"},
                                   {"clean"},
                                   {"pick", "--need", "1GiB", "--gpus", "sim:1x24GiB"}}) {
    const Outcome outcome = world.headroom(command);
    EXPECT_EQ(outcome.exit_code, 73) << (command.empty() ? "(none)" : command[0]);
    EXPECT_THAT(outcome.err, HasSubstr("cannot write standard output: No space left on device"));
  }
}

TEST(ClosedOutput, Is73) {
  const World world;
  EXPECT_EQ(world.run({"sh", "-c", std::string(HEADROOM_BINARY) + " cards >&-"}).exit_code, 73);
}

TEST(Version, IsAnEasilyReadLine) {
  const World world;
  EXPECT_TRUE(world.headroom({"--version"}).out.starts_with("headroom 0."));
  const Json json = world.headroom({"version", "--json"}).json();
  EXPECT_TRUE(json["version"].is_string());
  EXPECT_EQ(json["torch"], "2.10.0");
}

// ---- Completion ----

class Completion : public ::testing::Test {
 protected:
  // The words that bash offers for this command line, whose last word is being typed.
  [[nodiscard]] std::string offered(const std::string& words) const {
    const std::string script =
        "source <('" + std::string(HEADROOM_BINARY) + "' completion bash); " + "COMP_WORDS=(" +
        words + "); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); " + "_headroom; echo \"${COMPREPLY[@]}\"";
    return world_.run({"bash", "-c", script}).out;
  }
  const World world_;
};

TEST_F(Completion, IsABashScript) {
  const Outcome script = world_.headroom({"completion", "bash"});
  EXPECT_EQ(script.exit_code, 0);
  const auto path = world_.folder().write("completion.bash", script.out);
  const Outcome syntax = world_.run({"bash", "-n", path});
  EXPECT_EQ(syntax.exit_code, 0) << syntax.err;
}

TEST_F(Completion, OffersCommandsOptionsAndValues) {
  EXPECT_EQ(offered("headroom pi"), "pick\n");
  for (const std::string& command : kCommands)
    EXPECT_THAT(offered("headroom ''"), HasSubstr(command));
  EXPECT_EQ(offered("headroom pick --or"), "--order\n");
  EXPECT_EQ(offered("headroom pick --order l"), "least-loaded\n");
  EXPECT_EQ(offered("headroom log --format p"), "prometheus\n");
  EXPECT_EQ(offered("headroom trace re"), "replay report\n");
  EXPECT_EQ(offered("headroom trace replay --com"), "--compare\n");
  EXPECT_EQ(offered("headroom trace top /dev/nul"), "/dev/null\n");
  EXPECT_EQ(offered("headroom completion f"), "fish\n");
}

// The newest command is all keys, and completion knew none: a key ends with `=`, its values follow.
TEST_F(Completion, OffersKeysAndTheirValues) {
  EXPECT_THAT(offered("headroom train batch"), HasSubstr("batch_size="));
  EXPECT_THAT(offered("headroom config explain --config my.yaml gradient_a"),
              HasSubstr("gradient_accumulation_steps="));
  EXPECT_EQ(offered("headroom train model = f"), "full\n") << "bash's words of model=f";
  EXPECT_EQ(offered("headroom train 'model=f'"), "model=full\n") << "zsh's";
  EXPECT_THAT(offered("headroom train dataset ="), HasSubstr("flowers102 cub200"));
  EXPECT_THAT(offered("headroom train lr=1 optimizer = sgd-"), HasSubstr("sgd-momentum"));
  EXPECT_EQ(offered("headroom train training.bf16 = t"), "true\n");
  EXPECT_THAT(offered("headroom train model.config = gpt2-x"), HasSubstr("gpt2-xl"));
  EXPECT_EQ(offered("headroom train --config-name r"), "robust\n");
}

TEST_F(Completion, OffersTheIdsOfLeasesAndJobs) {
  const std::string ours = "'" + std::string(HEADROOM_BINARY) + "'";
  const Outcome job = world_.headroom({"run", "--gpus", "cpu", "--detach", "--", "true"});
  ASSERT_EQ(job.exit_code, 0) << job.err;
  EXPECT_THAT(offered(ours + " attach ''"), HasSubstr(job.out.substr(0, job.out.size() - 1)));
  EXPECT_THAT(offered(ours + " lease end --j"), HasSubstr("--json"));
}

// bash takes the colon for a word.
TEST_F(Completion, OffersProgramsAndTheirFunctions) {
  const std::string program =
      world_.folder().write("train.py",
                            "def make_step(batch=4):\n  def inner(): ...\n\n"
                            "def main():\n  pass\nclass Net: ...\n");
  const std::string start = program.substr(0, program.size() - 4);
  EXPECT_EQ(offered("headroom estimate " + start), program + "\n");
  EXPECT_EQ(offered("headroom fit " + program + " :"), "make_step main\n");
  EXPECT_EQ(offered("headroom estimate " + program + " : ma"), "make_step main\n");
  EXPECT_EQ(offered("headroom estimate " + program + " : mai"), "main\n");
  EXPECT_EQ(offered("headroom estimate nothing.py : m"), "\n");
}

// Completion ended at `run`: what stood behind "--" offered nothing, and models had no names.
TEST_F(Completion, OffersCommandsAndFilesBehindDashes) {
  EXPECT_THAT(offered("headroom run --need 1GiB -- pytho"), HasSubstr("python3"));
  EXPECT_EQ(offered("headroom run --need 1GiB -- ls /dev/nul"), "/dev/null\n");
  EXPECT_EQ(offered("headroom run --need 1GiB -- ls --ord"), "\n") << "no option of ours";
  EXPECT_EQ(offered("headroom run --ord"), "--order\n");
  EXPECT_THAT(offered("headroom estimate lla"), HasSubstr("llama-3.1-8b"));
}

// Tried with zsh and fish themselves where they are.
TEST_F(Completion, IsWrittenForZshAndFish) {
  for (const std::string shell : {"zsh", "fish"}) {
    const Outcome script = world_.headroom({"completion", shell});
    EXPECT_EQ(script.exit_code, 0) << shell;
    EXPECT_THAT(script.out, HasSubstr("llama-3.1-8b")) << shell;
    const auto path = world_.folder().write("completion." + shell, script.out);
    if (world_.run({"sh", "-c", "command -v " + shell}).exit_code != 0) continue;
    const Outcome syntax = world_.run({shell, "-n", path});
    EXPECT_EQ(syntax.exit_code, 0) << syntax.err;
  }
}

// It had the options, and not their words.
TEST_F(Completion, OffersValuesInFish) {
  if (world_.run({"sh", "-c", "command -v fish"}).exit_code != 0) GTEST_SKIP() << "no fish";
  const Outcome outcome =
      world_.run({"fish", "--no-config", "-c",
                  "'" + std::string(HEADROOM_BINARY) +
                      "' completion fish | source; complete -C 'headroom estimate gpt2 --dtype b'; "
                      "complete -C 'headroom completion f'"});
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("bfloat16"), HasSubstr("fish"))) << outcome.err;
}

TEST_F(Completion, KnowsNoOtherShell) {
  const Outcome outcome = world_.headroom({"completion", "tcsh"});
  EXPECT_EQ(outcome.exit_code, 64);
  EXPECT_EQ(outcome.out, "");
}

}  // namespace
}  // namespace headroom::testing

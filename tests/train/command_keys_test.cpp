// The words of `headroom train`: first guesses, keys without effect, mistakes that were called
// bugs, and what a run says of its end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "headroom/base/file.h"
#include "tests/train/command_world.h"

namespace headroom::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

const Arguments kTiny{"model=gpt-tiny", "dataset=synthetic", "--gpus", "sim:1x64MiB"};

void expect_refusal(const Arguments& arguments, const std::string& words, int code = 64) {
  const Outcome outcome = TrainingWorld().train(arguments);
  EXPECT_EQ(outcome.exit_code, code) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr(words), Not(HasSubstr("bug in Headroom"))));
}

// ---- First guesses ----

// Each was refused without a word on what works.
TEST(TrainWords, AFirstGuessIsAnsweredWithWhatWorks) {
  expect_refusal({"--batch-size", "4"}, "unknown option '--batch-size'; try batch_size=4");
  expect_refusal({"--learning_rate=1e-3"}, "try lr=1e-3");
  expect_refusal({"--lora-r", "16"}, "try model.lora_r=16");
  expect_refusal({"--resum"}, "did you mean '--resume'?");
  expect_refusal({"model=gpt2"}, "try model=full model.config=gpt2");
  expect_refusal({"gpt2"}, "try model=full model.config=gpt2");
  expect_refusal({"cub200"}, "try dataset=cub200");
  expect_refusal({"my.yaml"}, "try --config my.yaml");
  expect_refusal({"help"}, "headroom train --help");
  expect_refusal({"model=lorra"}, "try lora");
  expect_refusal({"--gpus", "8x31.36GiB"}, "try sim:8x31.36GiB");
}

// ---- Keys without effect ----

TEST(TrainWords, AKeyWithoutEffectIsRefused) {
  for (const char* key :
       {"num_classes=5", "image=64", "data_dir=/nowhere", "model.lora_r=4", "model.config=gpt2",
        "mask_token_id=3", "skip_damaged=true", "val_data=a"})
    expect_refusal(kTiny + Arguments{key},
                   "leaving " + std::string(key).substr(0, std::string(key).find('=')) + " out");
  expect_refusal(kTiny + Arguments{"min_batch_size=64"},
                 "min_batch_size of at most batch_size, 32");
  expect_refusal({"dataset=synthetic", "weights=random", "seq=64"}, "expected texts for seq");
  // It ended with a sentence about a class of the library.
  expect_refusal({"dataset=synthetic", "weights=random", "loss=fused"}, "expected texts for loss");
}

// ---- Numbers of fewer bits

TEST(TrainWords, ContradictingTypesOfNumbersAreRefused) {
  for (const char* mixed : {"bf16=true", "fp16=true"})
    expect_refusal(kTiny + Arguments{"dtype=bfloat16", mixed}, "expected dtype=float32 beside ");
  expect_refusal(kTiny + Arguments{"fp16=true", "bf16=true"}, "expected one of fp16 and bf16");
  expect_refusal(kTiny + Arguments{"rounding=stochastic"}, "try dtype=bfloat16");
  expect_refusal(kTiny + Arguments{"dtype=bfloat16", "rounding=stochastic", "optimizer=adam"},
                 "an optimizer that rounds stochastically");
}

TEST(TrainWords, EachOptimizerOfFewBitsTrainsInEachType) {
  for (const char* optimizer : {"adamw", "adamw8bit", "adamw4bit", "sgd-momentum", "adafactor"})
    for (const char* type : {"float32", "bfloat16"}) {
      const TrainingWorld world;
      const Outcome outcome = world.train(kTiny + Arguments{"steps=3", "out=" + world.path("out"),
                                                            std::string("dtype=") + type,
                                                            std::string("optimizer=") + optimizer});
      EXPECT_EQ(outcome.exit_code, 0) << optimizer << " " << type << outcome.err;
    }
}

TEST(TrainWords, AKeyWithoutEffectInAFileIsTold) {
  const TrainingWorld world;
  const std::string file = world.folder().write("my.yaml", "num_classes: 5\nwarmup_steps: 9\n");
  const Outcome outcome =
      world.train(kTiny + Arguments{"--config", file, "steps=2", "out=" + world.path("out")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("num_classes of " + file + ":1 has no effect"),
                                 HasSubstr("warmup_steps=9 of a run of 2 steps")));
}

// ---- model_variants ----

// "The command line overrides the file": a variant's model and batch came all the same.
TEST(TrainWords, TheCommandLineBeatsAVariant) {
  const TrainingWorld world;
  const std::string file = world.folder().write(
      "v.yaml",
      "model_variants: [{min_total: 40GiB, model: gpt2-medium, batch_size: 16},"
      " {model: gpt2, batch_size: 8}]\ndataset: synthetic\nmodel: full\nweights: random\n");
  const auto explained = [&](const Arguments& more) {
    const Outcome outcome = world.headroom(
        Arguments{"config", "explain", "--config", file, "--gpus", "sim:1x80GiB", "--json"} + more);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    std::string text;
    const Json document = outcome.json();
    for (const Json& key : document.at("keys"))
      if (key.at("key") == "model.config" || key.at("key") == "batch_size")
        text += key.at("value").dump() + " " + key.at("origin").get<std::string>() + "; ";
    return text;
  };
  EXPECT_EQ(explained({}), "\"gpt2-medium\" model_variants; 16 model_variants; ");
  EXPECT_EQ(explained({"batch_size=64"}), "\"gpt2-medium\" model_variants; 64 command line; ");
  EXPECT_EQ(explained({"model.config=gpt2-large"}), "\"gpt2-large\" command line; 32 default; ");
  const Outcome dry = world.train({"--dry-run", "--config", file, "batch_size=64", "seq=64",
                                   "--gpus", "sim:1x80GiB", "--json"});
  EXPECT_EQ(dry.json().at("effective_batch"), 64) << dry.err;
  EXPECT_THAT(dry.err, HasSubstr("batch_size=64 of the command line"));
}

// ---- Mistakes that were called bugs ----

TEST(TrainWords, AMistakeInAPathIsNoBug) {
  expect_refusal(kTiny + Arguments{"out="}, "a folder for out");
  expect_refusal(kTiny + Arguments{"out=" + std::string(300, 'x')}, "File name too long", 73);
  expect_refusal(kTiny + Arguments{"weights=" + std::string(300, 'x')}, "File name too long", 65);
  expect_refusal({"model=full", "dataset=synthetic", "weights=random",
                  "model.config=" + std::string(5000, 'y')},
                 "", 64);
}

// ---- The end of a run ----

// It printed no document: the run of which a script wants the events and the needs.
TEST(TrainEnd, OfARunWithoutMemoryPrintsItsDocument) {
  const TrainingWorld world;
  const Outcome outcome = world.train(
      world.on_tokens("out", {"steps=9", "spill=off", "--inject", "oom@step=3:phase=backward",
                              "--inject", "oom@2000:every=1"}));
  ASSERT_EQ(outcome.exit_code, 76) << outcome.err;
  const Json document = outcome.json();
  EXPECT_GE(document.at("steps").get<int>(), 3);
  EXPECT_EQ(document.at("weights_sha256").get<std::string>().size(), 64U);
  std::vector<std::string> kinds = events_of(outcome);
  EXPECT_EQ(kinds.front(), "oom");
  EXPECT_TRUE(document.at("events")[0].at("spurious").get<bool>()) << "of a committed step";
  EXPECT_THAT(kinds, Contains("shrink")) << "of the step that failed";
  EXPECT_EQ(kinds.back(), "checkpoint");
  EXPECT_TRUE(document.at("out_of_memory").at("needed_bytes").is_number());
  EXPECT_TRUE(document.at("out_of_memory").at("advice").is_array());
}

TEST(TrainEnd, OfARunWhoseModelDoesNotFitPrintsItsDocument) {
  const TrainingWorld world;
  const Outcome outcome =
      world.train({"model=full", "model.config=gpt2", "weights=random", "dataset=synthetic",
                   "--gpus", "sim:1x64MiB", "--json", "out=" + world.path("out")});
  EXPECT_EQ(outcome.exit_code, 76) << outcome.err;
  const Json document = outcome.json();
  EXPECT_EQ(document.at("steps"), 0);
  EXPECT_TRUE(document.at("final_loss").is_null());
  EXPECT_TRUE(document.at("out_of_memory").at("asked_bytes").is_number());
}

// One line at the first such step, then all steps and weights of no use, as if nothing had
// happened.
TEST(TrainEnd, SaysThatTheLossesAreNoNumbers) {
  const TrainingWorld world;
  const Arguments lost = world.on_tokens(
      "out", {"steps=30", "eval_every=10", "lr=1e30", "optimizer=sgd", "max_grad_norm=0"});
  const Outcome outcome = world.train(lost);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr(" losses are not finite numbers"),
                    HasSubstr("these weights are useless"), HasSubstr("stop_on_nan=10")));
  const Outcome stopped = world.train(lost + Arguments{"stop_on_nan=5"});
  EXPECT_EQ(stopped.exit_code, 1) << stopped.err;
  EXPECT_LT(stopped.json().at("steps").get<int>(), 12);
}

// `trace top` of a training knew no category of 96 % of the peak, and no module.
TEST(TrainEnd, ItsTraceKnowsCategoriesAndModules) {
  const TrainingWorld world;
  const std::string trace = world.path("run.hrtrace");
  ASSERT_EQ(world.train(world.on_tokens("out", {"steps=3", "--trace", trace})).exit_code, 0);
  const Json top = world.headroom({"trace", "top", trace, "--rows", "1000", "--json"}).json();
  std::int64_t unknown = 0;
  std::vector<std::string> categories, modules;
  for (const Json& share : top.at("by_category")) {
    if (share.at("name").is_null())
      unknown = share.at("bytes").get<std::int64_t>();
    else
      categories.push_back(share.at("name").get<std::string>());
  }
  for (const Json& share : top.at("by_module"))
    if (share.at("name").is_string()) modules.push_back(share.at("name").get<std::string>());
  EXPECT_THAT(categories,
              AllOf(Contains("activation"), Contains("parameter"), Contains("optimizer")));
  EXPECT_LT(unknown, top.at("at").at("live_bytes").get<std::int64_t>() / 50);
  EXPECT_THAT(modules, Contains("transformer.h.0.mlp.c_fc"));
}

}  // namespace
}  // namespace headroom::testing

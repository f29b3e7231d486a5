// What `headroom train` does with the folder of an earlier run: nothing in it is lost, and a run
// that goes on needs no setting twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "headroom/base/file.h"
#include "tests/support/file_size_limit.h"
#include "tests/train/command_world.h"

namespace headroom::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

class TrainFolder : public ::testing::Test {
 protected:
  // A GPT on tokens, with an evaluation every fourth step.
  [[nodiscard]] Arguments settings(const std::string& out, const Arguments& more = {}) const {
    return world_.on_tokens(out, {"steps=12", "eval_every=4"}) + more;
  }
  [[nodiscard]] Outcome train(const Arguments& more = {}) const {
    return world_.train(settings("out", more));
  }
  // With nothing but the folder.
  [[nodiscard]] Outcome resume(const Arguments& more = {}) const {
    return world_.train(Arguments{"--resume", "out=" + path(), "--gpus", "sim:1x64MiB", "--json"} +
                        more);
  }
  [[nodiscard]] std::string path(const std::string& name = {}) const {
    return world_.path("out" + (name.empty() ? "" : "/" + name));
  }
  [[nodiscard]] std::string text(const std::string& name) const {
    return read_file(path(name)).value_or("");
  }
  void remove_checkpoints(bool also_best) const {
    for (const auto& entry : fs::directory_iterator(path()))
      if (entry.path().filename().string().starts_with("checkpoint-")) fs::remove_all(entry.path());
    if (also_best) fs::remove_all(path("best"));
  }

  TrainingWorld world_;
};

// ---- Nothing is lost ----

// `rm -rf done/checkpoint-* done/best`, to save space, and then a script that always says --resume:
// the finished weights were replaced, and 62 lines of metrics became 4.
TEST_F(TrainFolder, ResumeWithoutACheckpointMovesTheEarlierRunAside) {
  ASSERT_EQ(train().exit_code, 0);
  const std::string weights = text("model/model.safetensors"), metrics = text("metrics.jsonl");
  remove_checkpoints(true);
  const Outcome again = train({"--resume", "steps=3"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, AllOf(HasSubstr("starting from the beginning"),
                               HasSubstr("an earlier run is now in " + path("earlier-1"))));
  EXPECT_EQ(text("earlier-1/model/model.safetensors"), weights);
  EXPECT_EQ(text("earlier-1/metrics.jsonl"), metrics);
  EXPECT_EQ(world_.metrics("out", "loss").size(), 3U);
}

// A run without save_every that was killed has only its best checkpoint. --resume began at step 0,
// and replaced it.
TEST_F(TrainFolder, ResumeTakesTheBestCheckpointIfThatIsTheNewest) {
  const std::string expected = weights_of(world_.train(settings("plain", {"steps=20"})));
  ASSERT_EQ(train().exit_code, 0);
  remove_checkpoints(false);
  const Outcome then = resume({"steps=20"});
  EXPECT_EQ(weights_of(then), expected);
  EXPECT_EQ(then.json().at("resumed_from"), 12);
  EXPECT_THAT(then.err, HasSubstr("steps was 12 until now, 20 from step 13"));
  EXPECT_EQ(world_.metrics("out", "loss").size(), 20U);
}

// The best one was the newest by its number, but torn; the next best was deleted at once, because
// its number was lower, and so was each new checkpoint.
TEST_F(TrainFolder, UnsoundCheckpointsThatAreNewerDoNotStandInTheWay) {
  ASSERT_EQ(train({"save_every=1", "keep_last=4"}).exit_code, 0);
  for (const char* name :
       {"checkpoint-00000012", "checkpoint-00000011", "best/checkpoint-00000012"})
    fs::resize_file(path(std::string(name) + "/model.safetensors"), 100);
  const auto running = world_.start_training(
      Arguments{"--resume", "out=" + path(), "--gpus", "sim:1x64MiB", "steps=11", "--json"});
  const Outcome then = running->wait();
  EXPECT_EQ(then.json().at("resumed_from"), 10);
  EXPECT_TRUE(fs::exists(path("checkpoint-00000011/state.json")));
  EXPECT_TRUE(fs::exists(path("checkpoint-00000012.refused")));
  EXPECT_TRUE(fs::exists(path("best/checkpoint-00000012.refused")));
  EXPECT_TRUE(fs::exists(path("checkpoint-00000011.refused/state.json"))) << "kept, to be mended";
}

TEST_F(TrainFolder, KeepsTheRecordOfStepsThatAreDoneAgain) {
  ASSERT_EQ(train({"save_every=5"}).exit_code, 0);
  fs::remove_all(path("checkpoint-00000012"));
  fs::remove_all(path("best"));
  const std::string metrics = text("metrics.jsonl");
  ASSERT_EQ(resume().json().at("resumed_from"), 10);
  EXPECT_EQ(world_.metrics("out", "loss").size(), 12U) << "each step once";
  const std::string cut = text("metrics.cut.jsonl");
  EXPECT_EQ(lines_of(cut).size(), 3U) << "two steps and an evaluation";
  EXPECT_THAT(metrics, HasSubstr(cut));
}

// `out=.` moved the user's own config.yaml and model/ to earlier-1, "an earlier run".
TEST_F(TrainFolder, TouchesNoFileOfTheUsers) {
  world_.folder().write("out/config.yaml", "mine: true\n");
  const Outcome refused = train();
  EXPECT_EQ(refused.exit_code, 73) << refused.err;
  EXPECT_THAT(refused.err, AllOf(HasSubstr(path("config.yaml")), HasSubstr("try another folder"),
                                 Not(HasSubstr("to train on"))));
  EXPECT_EQ(text("config.yaml"), "mine: true\n");
  fs::remove(path("config.yaml"));
  world_.folder().write("out/notes.txt", "mine");
  world_.folder().write("out/adapter/adapter_config.json", "mine, and this run writes model/");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(train().exit_code, 0);
  EXPECT_EQ(text("notes.txt"), "mine");
  EXPECT_THAT(text("adapter/adapter_config.json"), HasSubstr("mine"));
  EXPECT_TRUE(fs::exists(path("earlier-1/model/model.safetensors")));
}

// ---- Settings ----

// `--resume out=r1` of a mistyped folder complained of the weights of vit-base.
TEST_F(TrainFolder, ResumeOfNoRunSaysSo) {
  for (const char* how : {"--resume", "--eval-only"}) {
    const Outcome outcome = world_.headroom({"train", how, "out=" + world_.path("typo")});
    EXPECT_EQ(outcome.exit_code, 65);
    EXPECT_THAT(outcome.err, HasSubstr("expected the folder of an earlier run"));
  }
}

// `lr=1e-5 out=r1`, then `--resume out=r1`: the learning rate was 5e-4 from then on, without a
// word, and the first value was gone.
TEST_F(TrainFolder, ResumeReadsTheFoldersSettings) {
  const Arguments given{"steps=12", "lr=1e-4", "seed=3", "optimizer=sgd-momentum", "batch_size=4"};
  const std::string expected = weights_of(world_.train(world_.on_tokens("plain", given)));
  const auto running =
      world_.start_training(world_.on_tokens("out", given + Arguments{"save_every=1"}));
  ASSERT_TRUE(running->until([&](const Running&) { return text("metrics.jsonl").size() > 600; }));
  running->signal(SIGTERM);
  (void)running->wait();
  const Outcome then = resume();
  EXPECT_EQ(weights_of(then), expected);
  EXPECT_THAT(then.err, Not(HasSubstr("until now")));
}

TEST_F(TrainFolder, ASettingThatChangesIsToldAndStaysReadable) {
  ASSERT_EQ(train({"lr=1e-4"}).exit_code, 0);
  const Outcome then = resume({"steps=14", "lr=2e-4", "optimizer=sgd"});
  ASSERT_EQ(then.exit_code, 0) << then.err;
  EXPECT_THAT(then.err, AllOf(HasSubstr("lr was 1e-4 until now, 2e-4 from step 13"),
                              HasSubstr("optimizer was adamw until now, sgd from step 13"),
                              HasSubstr("states start empty")));
  EXPECT_THAT(text("config.yaml"),
              AllOf(HasSubstr("\nlr: 2e-4\n"), HasSubstr("# change: lr was 1e-4 until now")));
  EXPECT_THAT(resume({"steps=16"}).err, Not(HasSubstr("lr was")));
  EXPECT_THAT(text("config.yaml"), HasSubstr("# change: lr was 1e-4 until now"));
  const Outcome other = resume({"steps=20", "model.config=" + world_.vit()});
  EXPECT_EQ(other.exit_code, 64) << other.err;
  EXPECT_THAT(other.err, HasSubstr("with which the run in " + path() + " goes on"));
}

TEST_F(TrainFolder, WeightsInFewerBitsStaySo) {
  ASSERT_EQ(train({"model=lora", "quantize=4bit", "steps=2"}).exit_code, 0);
  for (const char* more : {"quantize=none", "quantize=8bit"}) {
    const Outcome other = resume({"steps=4", more});
    EXPECT_EQ(other.exit_code, 64) << other.err;
    EXPECT_THAT(other.err, HasSubstr("4bit, with which the run in " + path() + " goes on"));
  }
  EXPECT_EQ(resume({"steps=4", "quantize=auto"}).exit_code, 0);
}

// `cd elsewhere; headroom train --config ../r1/config.yaml --resume` began anew in ./r1.
TEST_F(TrainFolder, TheConfigOfARunMeansItsFolder) {
  const auto in = [&](const std::string& folder, const std::string& words) {
    fs::create_directories(world_.path(folder));
    return world_.run({"sh", "-c",
                       "cd " + world_.path(folder) +
                           " && " HEADROOM_BINARY " train --gpus sim:1x64MiB --json " + words});
  };
  ASSERT_EQ(in("here",
               "model=gpt-tiny dataset=synthetic seq=16 batch_size=4 steps=3 "
               "min_gpu_memory_mb=0 out=r1")
                .exit_code,
            0);
  fs::rename(world_.path("here/r1"), world_.path("moved"));
  const Outcome then = in("there", "--config ../moved/config.yaml --resume steps=5");
  EXPECT_EQ(then.json().at("resumed_from"), 3) << then.err;
  EXPECT_FALSE(fs::exists(world_.path("there/r1")));
  EXPECT_FALSE(fs::exists(world_.path("here/r1")));
}

// --eval-only and --resume looked for vit-base in the hub's cache although config.yaml was there.
TEST_F(TrainFolder, AnEvaluationReadsTheFoldersSettings) {
  const Outcome trained = train();
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const Outcome measured =
      world_.train({"--eval-only", "out=" + path(), "--gpus", "sim:1x64MiB", "--json"});
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  EXPECT_EQ(measured.json().at("val_loss"), trained.json().at("val_loss"));
}

TEST_F(TrainFolder, ARunThatGoesOnNeedsNoWeights) {
  fs::copy(world_.gpt(), world_.path("base"));
  ASSERT_EQ(train({"model.config=" + world_.path("base")}).exit_code, 0);
  fs::remove(world_.path("base/model.safetensors"));
  EXPECT_EQ(resume({"steps=14"}).json().at("resumed_from"), 12);
}

// ---- Early stop ----

// After an early stop model/ had the last, worse weights.
TEST_F(TrainFolder, AfterAnEarlyStopTheResultIsTheBest) {
  const Arguments worse{"steps=60",      "eval_every=1", "early_stop=3",
                        "optimizer=sgd", "lr=30",        "max_grad_norm=0"};
  const Outcome stopped = train(worse);
  ASSERT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_THAT(stopped.err, HasSubstr("the weights of the best evaluation, after step "));
  double best = 1e30;
  for (const Json& line : world_.metrics("out", "val_loss"))
    if (line.at("val_loss").is_number()) best = std::min(best, line.at("val_loss").get<double>());
  const Outcome measured =
      world_.train(world_.on_tokens("other", {"weights=" + path("model"), "--eval-only"}));
  EXPECT_DOUBLE_EQ(measured.json().at("val_loss").get<double>(), best);
  const Outcome again = resume();
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(again.json().at("steps"), stopped.json().at("steps")) << "it has ended, and stays so";
  EXPECT_EQ(weights_of(again), weights_of(stopped));
}

// ---- A full disk, and signals ----

// A full disk ended the training at its first checkpoint, and two messages named two steps.
TEST_F(TrainFolder, GoesOnWithoutACheckpointThatCannotBeWritten) {
  const Arguments small{"save_every=2"};
  const std::string expected = weights_of(world_.train(settings("plain", small)));
  const FileSizeLimit limit(30'000);  // a file of weights is larger
  const Outcome full = train(small);
  EXPECT_EQ(full.exit_code, 73) << full.err;
  EXPECT_THAT(full.err, AllOf(HasSubstr("no checkpoint of step 2: cannot write"),
                              HasSubstr("the training goes on"), HasSubstr("step 12/12"),
                              Not(HasSubstr("no checkpoint of step 4"))));
  EXPECT_EQ(world_.metrics("out", "loss").size(), 12U);
}

// `ulimit -f` ended a run by SIGXFSZ, without a word.
TEST_F(TrainFolder, ALimitOnFilesIsAWriteError) {
  const Outcome full = world_.run({"sh", "-c",
                                   "ulimit -f 40; exec " HEADROOM_BINARY
                                   " train model=gpt-tiny dataset=synthetic seq=16 batch_size=4 "
                                   "steps=3 device=cpu out=" +
                                       path()});
  EXPECT_EQ(full.exit_code, 73) << full.err;
  EXPECT_THAT(full.err, HasSubstr("File too large"));
}

// Slurm's warning, --signal=USR1, killed the run without a checkpoint.
TEST_F(TrainFolder, SavesWhenItIsAskedToAndGoesOn) {
  const auto running =
      world_.start_training(world_.on_tokens("out", {"steps=1000000", "eval_every=1000000"}));
  const auto steps = [&] { return world_.metrics("out", "loss").size(); };
  ASSERT_TRUE(running->until([&](const Running&) { return !text("metrics.jsonl").empty(); }));
  running->signal(SIGUSR1);
  ASSERT_TRUE(running->until_err_has("checkpoint of step ")) << running->err();
  const auto saved = steps();
  EXPECT_TRUE(running->until([&](const Running&) { return steps() > saved + 2; })) << "it goes on";
  running->signal(SIGKILL);
  (void)running->wait();
  EXPECT_GE(resume({"steps=1"}).json().at("resumed_from").get<int>(), 1);
}

// The second run was refused after it had loaded and priced all, without the PID of the first.
TEST_F(TrainFolder, ASecondRunIsRefusedBeforeItLoads) {
  const auto running =
      world_.start_training(world_.on_tokens("out", {"steps=1000000", "eval_every=1000000"}));
  ASSERT_TRUE(running->until([&](const Running&) { return !text("metrics.jsonl").empty(); }));
  const Outcome second = train();
  EXPECT_EQ(second.exit_code, 75) << second.err;
  EXPECT_THAT(second.err, AllOf(HasSubstr("another run writes in " + path()), HasSubstr("PID"),
                                Not(HasSubstr("to train on"))));
  running->signal(SIGKILL);
  (void)running->wait();
}

// ---- Will it fit ----

// It needed the weights and the data on disk first.
TEST_F(TrainFolder, ADryRunNeedsNeitherWeightsNorData) {
  const Outcome fits = world_.train({"--dry-run", "model=lora", "dataset=flowers102", "image=224",
                                     "batch_size=4", "--gpus", "sim:1x24GiB", "--json"});
  ASSERT_EQ(fits.exit_code, 0) << fits.err;
  EXPECT_TRUE(fits.json().at("fits").get<bool>());
  EXPECT_THAT(fits.err, AllOf(HasSubstr("stand in for"), HasSubstr("vit-base")));
  const Outcome named = world_.train({"--dry-run", "dataset=tokens", "model=full", "seq=64",
                                      "data_dir=" + path("nowhere"), "--gpus", "sim:1x24GiB"});
  EXPECT_EQ(named.exit_code, 65) << "what was named must be there: " << named.err;
}

}  // namespace
}  // namespace headroom::testing

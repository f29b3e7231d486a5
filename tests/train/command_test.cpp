// `headroom train` from end to end: what it trains, prints and writes, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "headroom/base/file.h"
#include "tests/train/command_world.h"

namespace headroom::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::MatchesRegex;
using ::testing::Not;

namespace fs = std::filesystem;

double number_at(const Json& document, const char* key) {
  return document.at(key).get<double>();
}

// The last lines of a text for people, one device's memory.
constexpr const char* kSummary =
    "GPU Memory Summary \\(sim:0\\):\n  Allocated: [0-9]+\\.[0-9][0-9] GiB\n"
    "  Reserved: [0-9]+\\.[0-9][0-9] GiB\n  Max Allocated: [0-9]+\\.[0-9][0-9] GiB\n";

// Of a run over some epochs.
void expect_that_it_learned(const TrainingWorld& world, const Outcome& outcome, double accuracy) {
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto steps = world.metrics("out", "loss");
  ASSERT_GT(steps.size(), 4U);
  EXPECT_LT(number_at(steps.back(), "loss"), 0.8 * number_at(steps.front(), "loss"));
  EXPECT_GE(number_at(outcome.json(), "val_accuracy"), accuracy) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(", accuracy "));
}

// ---- Images, as published ----

TEST(TrainCommand, TrainsAdaptersOnFlowers102) {
  const TrainingWorld world;
  const Outcome outcome =
      world.train({"model=lora", "dataset=flowers102", "data_dir=" + world.flowers102(),
                   "model.config=" + world.vit(), "batch_size=12", "epochs=12", "lr=1e-2",
                   "model.lora_r=4", "out=" + world.path("out"), "--gpus", "sim:1x1GiB", "--json"});
  expect_that_it_learned(world, outcome, 0.5);
  EXPECT_THAT(outcome.err, HasSubstr(" of them trained"));
  EXPECT_EQ(outcome.json().at("device"), "sim:0");
  const fs::path adapter = world.path("out/adapter");
  EXPECT_TRUE(fs::exists(adapter / "adapter_model.safetensors"));
  const Json config = Json::parse(read_file(adapter / "adapter_config.json").value_or("{}"));
  EXPECT_EQ(config.at("peft_type"), "LORA");
  EXPECT_EQ(config.at("r"), 4);
}

TEST(TrainCommand, TrainsAHeadOnCub200OnTheCpu) {
  const TrainingWorld world;
  const Outcome outcome =
      world.train({"model=linear_probe", "dataset=cub200", "data_dir=" + world.cub200(),
                   "model.config=" + world.vit(), "batch_size=12", "epochs=20", "lr=3e-2",
                   "device=cpu", "out=" + world.path("out"), "--json"});
  expect_that_it_learned(world, outcome, 0.4);
  EXPECT_EQ(outcome.json().at("device"), "cpu");
  EXPECT_THAT(outcome.err, HasSubstr("on the CPU the whole run takes about "));
  EXPECT_TRUE(fs::exists(world.path("out/model/model.safetensors")));
}

TEST(TrainCommand, SavesWeightsThatItTrainsFurther) {
  const TrainingWorld world;
  const Arguments both{"model=linear_probe",
                       "dataset=cub200",
                       "data_dir=" + world.cub200(),
                       "model.config=" + world.vit(),
                       "batch_size=12",
                       "device=cpu",
                       "--json"};
  const Outcome first =
      world.train(both + Arguments{"epochs=8", "lr=3e-2", "out=" + world.path("first")});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const Outcome then = world.train(both + Arguments{"weights=" + world.path("first/model"),
                                                    "out=" + world.path("then"), "--eval-only"});
  ASSERT_EQ(then.exit_code, 0) << then.err;
  for (const char* key : {"val_loss", "val_accuracy"})
    EXPECT_DOUBLE_EQ(number_at(then.json(), key), number_at(first.json(), key)) << key;
}

TEST(TrainCommand, EndsWithFourLinesOfMemory) {
  const TrainingWorld world;
  const Outcome outcome =
      world.train({"--config-name", "robust", "model=lora", "dataset=cub200",
                   "data_dir=" + world.cub200(), "model.config=" + world.vit(), "batch_size=12",
                   "epochs=1", "out=" + world.path("out"), "--gpus", "sim:1x1GiB"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, MatchesRegex(kSummary));
  EXPECT_THAT(outcome.err, HasSubstr("headroom train: cub200: 36 to train on, 12 to evaluate on"));
  const std::string config = read_file(world.path("out/config.yaml")).value_or("");
  EXPECT_THAT(config, AllOf(HasSubstr("save_every: 100"), HasSubstr("allow_cpu: true")));
}

// ---- What it prints and writes ----

TEST(TrainCommand, PrintsOneDocumentWithJson) {
  const TrainingWorld world;
  const Outcome outcome = world.train(world.on_tokens("out", {"steps=3"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json document = outcome.json();
  EXPECT_THAT(keys_of(document), IsSupersetOf({"schema", "steps", "samples_seen", "final_loss",
                                               "val_accuracy", "weights_sha256", "effective_batch",
                                               "plan", "plan_schedule", "events", "peak"}));
  EXPECT_EQ(document.at("schema"), 1);
  EXPECT_EQ(document.at("steps"), 3);
  EXPECT_EQ(document.at("samples_seen"), 24);
  EXPECT_EQ(document.at("effective_batch"), 8);
  EXPECT_TRUE(document.at("val_accuracy").is_null());
  EXPECT_EQ(document.at("weights_sha256").get<std::string>().size(), 64U);
  EXPECT_EQ(document.at("plan_schedule"), world.path("out/plan_schedule.jsonl"));
  EXPECT_EQ(document.at("plan").at("micro_batch"), 8);
  EXPECT_EQ(events_of(outcome), std::vector<std::string>{"checkpoint"});
  EXPECT_THAT(
      keys_of(document.at("events")[0]),
      IsSupersetOf({"step", "kind", "spurious", "asked_bytes", "free_bytes", "cached_bytes",
                    "neighbour_bytes", "micro_batch_from", "micro_batch_to", "from", "to"}));
  EXPECT_GT(number_at(document.at("peak"), "allocated_bytes"), 0);
  EXPECT_THAT(outcome.err, HasSubstr("GPU Memory Summary (sim:0):\n"));
}

TEST(TrainCommand, WritesALineForEachStepAndEvaluation) {
  const TrainingWorld world;
  const Outcome outcome = world.train(world.on_tokens("out", {"steps=4", "eval_every=2"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto steps = world.metrics("out", "loss");
  ASSERT_EQ(steps.size(), 4U);
  for (std::size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i].at("step"), i + 1);
  EXPECT_THAT(keys_of(steps[0]), IsSupersetOf({"rows", "learning_rate", "micro_batch", "attempts",
                                               "allocated_bytes", "max_allocated_bytes"}));
  EXPECT_EQ(number_at(steps[3], "loss"), number_at(outcome.json(), "final_loss"));
  EXPECT_EQ(world.metrics("out", "val_loss").size(), 2U);
}

std::int64_t bytes_of(const Json& top, std::string_view category) {
  for (const Json& share : top.at("by_category"))
    if (share.at("name") == category) return share.at("bytes").get<std::int64_t>();
  return 0;
}

TEST(TrainCommand, SavesATraceAndASnapshot) {
  const TrainingWorld world;
  const std::string trace = world.path("run.hrtrace"), snapshot = world.path("run.pickle");
  for (const Arguments& device : {Arguments{}, Arguments{"device=cpu"}}) {
    Arguments arguments =
        world.on_tokens("out", {"steps=2", "--trace", trace, "--snapshot", snapshot});
    if (!device.empty()) {
      std::erase(arguments, "--gpus");
      std::erase(arguments, "sim:1x64MiB");
    }
    const Outcome outcome = world.train(arguments + device);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    for (const std::string& file : {trace, snapshot}) {
      const Outcome top = world.headroom({"trace", "top", file, "--json"});
      EXPECT_EQ(top.exit_code, 0) << top.err;
      EXPECT_THAT(top.out, HasSubstr("aten::")) << file;
    }
    const Json end = world.headroom({"trace", "top", trace, "--at", "end", "--json"}).json();
    const std::int64_t parameters = bytes_of(end, "parameter");
    EXPECT_GT(parameters, 0);
    EXPECT_GE(bytes_of(end, "optimizer"), 2 * parameters) << "two moments of each";
    EXPECT_LT(bytes_of(end, "optimizer"), 3 * parameters);
  }
}

// A trace of a run that ran out of memory is what people want most.
TEST(TrainCommand, SavesTheTraceOfARunThatRanOutOfMemory) {
  const TrainingWorld world;
  const std::string trace = world.path("run.hrtrace"), page = world.path("run.html");
  const Outcome outcome = world.train(world.on_tokens(
      "out", {"steps=2", "--trace", trace, "--html", page, "--inject", "oom@40:every=1"}));
  EXPECT_EQ(outcome.exit_code, 76) << outcome.err;
  const std::string text = read_file(page).value_or("");
  const auto has = [&](const std::string& part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has("\"recorded\":true"));
  EXPECT_TRUE(has("\"capacity_bytes\":" + std::to_string(64 << 20)));
  EXPECT_TRUE(has("[\"batch_size\",")) << "also where it is the default's or a file's";
  EXPECT_TRUE(has("Out of memory on sim:0")) << "the report of stderr";
  EXPECT_EQ(world.headroom({"trace", "top", trace, "--json"}).exit_code, 0);
}

TEST(TrainCommand, NamesTheVariantThatItChose) {
  const TrainingWorld world;
  const std::string file = world.folder().write(
      "variants.yaml", "model_variants: [{min_total: 40GiB, model: gpt2-xl}, {model: " +
                           world.gpt() + ", batch_size: 4}]\n");
  Arguments arguments = world.on_tokens("out", {"steps=1", "--config", file});
  std::erase_if(arguments, [](const auto& one) {
    return one.starts_with("model.config=") || one.starts_with("batch_size=");
  });
  const Outcome outcome = world.train(arguments);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.json().at("effective_batch"), 4);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr(world.gpt()), HasSubstr("64.0 MiB")));
}

// ---- Without training ----

TEST(TrainCommand, ADryRunTrainsNothing) {
  const TrainingWorld world;
  const Outcome fits = world.train(world.on_tokens("out", {"--dry-run"}));
  EXPECT_EQ(fits.exit_code, 0) << fits.err;
  EXPECT_EQ(fits.json().at("fits"), true);
  EXPECT_GT(number_at(fits.json(), "needed_bytes"), 0);
  const Outcome not_on_this =
      world.train({"model=full", "model.config=gpt2", "weights=random", "dataset=synthetic",
                   "seq=64", "--gpus", "sim:1x1GiB", "out=" + world.path("out"), "--dry-run"});
  EXPECT_EQ(not_on_this.exit_code, 2) << not_on_this.err;
  EXPECT_THAT(not_on_this.out, HasSubstr("does not fit; nothing was trained"));
  EXPECT_FALSE(fs::exists(world.path("out")));
  const std::string page = world.path("run.html");
  EXPECT_EQ(world.train(world.on_tokens("out", {"--dry-run", "--html", page})).exit_code, 64);
}

TEST(TrainCommand, AnEvaluationTrainsNothing) {
  const TrainingWorld world;
  const std::string page = world.path("run.html");
  const Outcome before = world.train(world.on_tokens("out", {"--eval-only", "--html", page}));
  EXPECT_TRUE(fs::exists(page));
  ASSERT_EQ(before.exit_code, 0) << before.err;
  EXPECT_FALSE(fs::exists(world.path("out")));
  const Outcome trained = world.train(world.on_tokens("out", {"steps=20"}));
  EXPECT_LT(number_at(trained.json(), "val_loss"), number_at(before.json(), "val_loss"));
  const Outcome after = world.train(world.on_tokens("out", {"--eval-only", "--resume"}));
  EXPECT_EQ(after.json().at("val_loss"), trained.json().at("val_loss"));
}

TEST(TrainCommand, StopsEarlyWhenEvaluationsGetNoBetter) {
  const TrainingWorld world;
  const Outcome outcome =
      world.train(world.on_tokens("out", {"steps=60", "eval_every=1", "early_stop=2",
                                          "optimizer=sgd", "lr=100", "max_grad_norm=0"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_LT(number_at(outcome.json(), "steps"), 60);
  EXPECT_THAT(outcome.err, HasSubstr("stopped early"));
}

// ---- What it refuses ----

TEST(TrainCommand, NamesTheNearestKeyOfAnUnknownOne) {
  const Outcome outcome = TrainingWorld().train({"btch_size=4", "dataset=synthetic"});
  EXPECT_EQ(outcome.exit_code, 64);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("btch_size"), HasSubstr("try batch_size")));
}

TEST(TrainCommand, SaysWhereMissingDataComeFrom) {
  const TrainingWorld world;
  const auto told = [&](const std::string& dataset, const Arguments& more) {
    const Outcome outcome =
        world.train(Arguments{"model=lora", "dataset=" + dataset, "device=cpu"} + more);
    EXPECT_EQ(outcome.exit_code, 65) << outcome.err;
    return outcome.err;
  };
  const Arguments image{"model.config=" + world.vit(), "data_dir=" + world.path("nowhere")};
  EXPECT_THAT(told("flowers102", image),
              AllOf(HasSubstr("102flowers.tgz"), HasSubstr("https://"), HasSubstr("nowhere")));
  EXPECT_THAT(told("cub200", image),
              AllOf(HasSubstr("CUB_200_2011.tgz"), HasSubstr("https://"), HasSubstr("nowhere")));
  EXPECT_THAT(told("tokens", {"model.config=" + world.gpt(), "data_dir=" + world.path("nowhere")}),
              AllOf(HasSubstr("nowhere/train.bin"), HasSubstr("headroom.tokens")));
}

// It was a usage error, 64, without a word on where the data come from.
TEST(TrainCommand, LooksForDataWhereTheyUsuallyAre) {
  const TrainingWorld world;
  const Outcome outcome = world.train(
      {"model=lora", "dataset=flowers102", "device=cpu", "model.config=" + world.vit()});
  EXPECT_EQ(outcome.exit_code, 65) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("data/flowers102"), HasSubstr("https://")));
}

TEST(TrainCommand, SaysWhereMissingWeightsComeFrom) {
  const TrainingWorld world;
  const auto told = [&](const Arguments& more) {
    const Outcome outcome = world.train(
        Arguments{"model=full", "dataset=synthetic", "device=cpu", "model.config=gpt2"} + more);
    EXPECT_EQ(outcome.exit_code, 65) << outcome.err;
    return outcome.err;
  };
  EXPECT_THAT(told({}),
              AllOf(HasSubstr("weights of gpt2"), HasSubstr("huggingface/hub"),
                    HasSubstr("hf download openai-community/gpt2"), HasSubstr("weights=random")));
  EXPECT_THAT(told({"weights=" + world.path("nowhere")}),
              AllOf(HasSubstr("safetensors"), HasSubstr("nowhere")));
}

TEST(TrainCommand, SaysThatAFolderWithAConfigHasNoWeights) {
  const TrainingWorld world;
  world.folder().write("mine/config.json", R"({"model_type": "gpt2", "n_layer": 1})");
  const Outcome outcome =
      world.train({"model=full", "dataset=synthetic", "model.config=" + world.path("mine")});
  EXPECT_EQ(outcome.exit_code, 65);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("model.safetensors"), HasSubstr(world.path("mine")),
                                 Not(HasSubstr("cache"))));
}

TEST(TrainCommand, LooksAtItsDataBeforeItWaitsForACard) {
  const TrainingWorld world;
  const Arguments full{"--gpus", "sim:1x1GiB@full", "min_gpu_memory_mb=4000", "weights=random"};
  const Outcome missing = world.train(
      Arguments{"model=linear_probe", "dataset=cub200", "data_dir=" + world.path("nowhere")} +
      full);
  EXPECT_EQ(missing.exit_code, 65) << missing.err;
  EXPECT_THAT(missing.err, HasSubstr("https://"));
  const Outcome never = world.train(Arguments{"model=gpt-tiny"} + full);
  EXPECT_EQ(never.exit_code, 75) << never.err;
  EXPECT_THAT(never.err, AllOf(HasSubstr("even when empty"), Not(HasSubstr("wait_for_gpu"))));
}

// All its layers were of another shape: adapters of random layers were trained.
TEST(TrainCommand, RefusesAdaptersOnWeightsOfAnotherModel) {
  const TrainingWorld world;
  const Outcome outcome =
      world.train({"model=lora", "dataset=synthetic", "model.config=vit-base", "device=cpu",
                   "weights=" + world.vit(), "out=" + world.path("out")});
  EXPECT_EQ(outcome.exit_code, 65) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("all that is not trained"), HasSubstr(world.vit())));
}

// Each was "a bug in Headroom" in LibTorch's words, 70.
TEST(TrainCommand, RefusesDataThatDoNotSuitTheModel) {
  const TrainingWorld world;
  const Arguments on_cpu{"device=cpu", "model.config=" + world.vit(), "model=full"};
  const auto told = [&](const Arguments& more, int code) {
    const Outcome outcome = world.train(on_cpu + more);
    EXPECT_EQ(outcome.exit_code, code) << outcome.err;
    return outcome.err;
  };
  EXPECT_THAT(told({"dataset=cub200", "data_dir=" + world.cub200(), "num_classes=2"}, 64),
              HasSubstr("at least the 6 classes of cub200"));
  EXPECT_THAT(told({"dataset=tokens", "data_dir=" + world.tokens()}, 64),
              HasSubstr("images for " + world.vit()));
}

TEST(TrainCommand, ADryRunOfAModelThatDoesNotFitEndsWith2) {
  const Outcome outcome =
      TrainingWorld().train({"--dry-run", "model=full", "model.config=gpt2", "weights=random",
                             "dataset=synthetic", "--gpus", "sim:1x256MiB"});
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("the model does not fit"), Not(HasSubstr("half"))));
}

TEST(TrainCommand, StopsAtWhatComesFirst) {
  const TrainingWorld world;
  const auto steps = [&](const Arguments& more) {
    return world.train(world.on_tokens("out", more)).json().at("steps").get<int>();
  };
  const int epoch = steps({"epochs=1"});
  EXPECT_EQ(steps({"epochs=1", "steps=" + std::to_string(epoch + 3)}), epoch);
  EXPECT_EQ(steps({"epochs=1", "steps=2"}), 2);
}

TEST(TrainCommand, SaysThatItsLossIsNoNumber) {
  const TrainingWorld world;
  const Outcome outcome = world.train(
      world.on_tokens("out", {"steps=6", "lr=1e30", "optimizer=sgd", "max_grad_norm=0"}));
  EXPECT_THAT(outcome.err, HasSubstr("is not a finite number"));
}

// "This is a bug in Headroom: index out of range in self", 70.
TEST(TrainCommand, RefusesTokensThatTheModelDoesNotHave) {
  const TrainingWorld world;
  world.folder().write("foreign/train.bin", std::string(4096, '\x7f'));
  const Outcome outcome =
      world.train(world.on_tokens("out", {"data_dir=" + world.path("foreign"), "steps=1"}));
  EXPECT_EQ(outcome.exit_code, 65);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("foreign/train.bin"), HasSubstr("tokens below 256")));
}

TEST(TrainCommand, RefusesRowsLongerThanTheModelsPositions) {
  const TrainingWorld world;
  const Outcome outcome = world.train(world.on_tokens("out", {"seq=65", "steps=1"}));
  EXPECT_EQ(outcome.exit_code, 64);
  EXPECT_THAT(outcome.err, HasSubstr("at most 64 tokens"));
}

TEST(TrainCommand, FindsWeightsInTheHuggingFaceCache) {
  const TrainingWorld world;
  const fs::path snapshots =
      world.path(".cache/huggingface/hub/models--google--vit-base-patch16-224/snapshots/1");
  fs::create_directories(snapshots);
  world.folder().write(snapshots / "model.safetensors", "torn");
  const Outcome outcome = world.train({"model=lora", "dataset=synthetic", "model.config=vit-base",
                                       "device=cpu", "out=" + world.path("out")});
  EXPECT_EQ(outcome.exit_code, 65) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("snapshots/1")) << "it was found, and is no weights";
}

TEST(TrainCommand, RefusesASimulatedDeviceWithoutSimulatedCards) {
  const Outcome outcome = TrainingWorld().train({"dataset=synthetic", "device=sim:0"});
  EXPECT_EQ(outcome.exit_code, 64);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("sim:0"), HasSubstr("--gpus sim:1x24GiB")));
}

TEST(TrainCommand, SaysThatItCannotWrite) {
  const TrainingWorld world;
  world.folder().write("file", "");
  const Outcome outcome = world.train(world.on_tokens("file/out", {"steps=1"}));
  EXPECT_EQ(outcome.exit_code, 73);
  EXPECT_THAT(outcome.err, HasSubstr(world.path("file/out")));
  EXPECT_EQ(outcome.out, "");
}

TEST(TrainCommand, WithoutACardNamesTheCpu) {
  const Outcome outcome = TrainingWorld().train({"dataset=synthetic", "weights=random"});
  EXPECT_EQ(outcome.exit_code, 69);
  EXPECT_THAT(outcome.err, HasSubstr("allow_cpu=true"));
}

// ---- Several at once ----

TEST(TrainCommand, ARunOnAFullCardWaitsForTheOther) {
  const TrainingWorld world;
  const auto arguments = [&](const std::string& out, const std::string& steps) {
    Arguments all =
        world.on_tokens(out, {steps, "wait_for_gpu=true", "gpu_check_interval_seconds=0.1"});
    std::replace(all.begin(), all.end(), std::string("sim:1x64MiB"),
                 std::string("sim:1x40MiB@shared"));
    return all;
  };
  const std::string alone = weights_of(world.train(arguments("alone", "steps=5")));
  const auto first = world.start_training(arguments("first", "steps=1000000"));
  ASSERT_TRUE(first->until_err_has("step 1/")) << first->err();
  const auto second =
      world.start_training(arguments("second", "steps=5") + Arguments{"min_gpu_memory_mb=40"});
  EXPECT_TRUE(second->until_err_has("waiting")) << second->err();
  first->signal(SIGTERM);
  EXPECT_EQ(weights_of(second->wait()), alone);
}

TEST(TrainCommand, WithoutRoomItSaysBusy) {
  const TrainingWorld world;
  Arguments arguments = world.on_tokens("out", {"min_gpu_memory_mb=80"});
  std::replace(arguments.begin(), arguments.end(), std::string("sim:1x64MiB"),
               std::string("sim:1x64MiB@small"));
  const Outcome outcome = world.train(arguments);
  EXPECT_EQ(outcome.exit_code, 75);
  EXPECT_THAT(outcome.err, HasSubstr("no card has that much even when empty"));
}

}  // namespace
}  // namespace headroom::testing

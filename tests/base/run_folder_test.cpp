#include "headroom/base/run_folder.h"

#include <gmock/gmock.h>

#include <unistd.h>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "tests/support/temporary_folder.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

constexpr const char* kRecord = "{\"step\":1,\"loss\":2.0,\"attempts\":1}\n";

std::string refusal(const std::function<void()>& what) {
  try {
    what();
  } catch (const Error& error) {
    return error.sentence();
  }
  return "nothing was thrown";
}

TEST(RunFolder, MovesWhatAnEarlierRunLeftAndNothingElse) {
  const TemporaryFolder folder;
  {
    RunFolder run(folder.path());
    EXPECT_FALSE(run.has_a_run());
    for (const char* name : {"metrics.jsonl", "model"}) run.claim(name);
  }
  folder.write("metrics.jsonl", kRecord);
  folder.write("model/model.safetensors", "weights");
  folder.write("checkpoint-00000012/state.json", "{}");
  folder.write("notes.txt", "mine");
  folder.write("checkpoint-500/trainer_state.json", "of another program");
  folder.write("checkpoint-00000012-good/state.json", "my copy");
  RunFolder run(folder.path());
  ASSERT_TRUE(run.has_a_run());
  const auto moved = run.set_aside();
  ASSERT_TRUE(moved);
  EXPECT_EQ(moved->folder, folder.path() / "earlier-1");
  EXPECT_GT(moved->bytes, Bytes{0});
  for (const char* name : {"metrics.jsonl", "model/model.safetensors", "checkpoint-00000012"})
    EXPECT_TRUE(fs::exists(moved->folder / name)) << name;
  for (const char* name : {"notes.txt", "checkpoint-500", "checkpoint-00000012-good"})
    EXPECT_TRUE(fs::exists(folder.path() / name)) << name;
  EXPECT_FALSE(run.has_a_run());
  EXPECT_FALSE(run.set_aside());
  run.claim("model");
  folder.write("model/model.safetensors", "others");
  EXPECT_EQ(run.set_aside()->folder, folder.path() / "earlier-2");
}

// `headroom train out=.` in a folder with a config.yaml and a model/ of one's own moved both to
// earlier-1 as "an earlier run".
TEST(RunFolder, RefusesToReplaceWhatNoRunMade) {
  const TemporaryFolder folder;
  folder.write("config.yaml", "mine: true\n");
  folder.write("model/model.safetensors", "mine");
  EXPECT_FALSE(is_run_folder(folder.path()));
  RunFolder run(folder.path());
  EXPECT_FALSE(run.set_aside());
  for (const char* name : {"config.yaml", "model"})
    EXPECT_THAT(refusal([&] { run.claim(name); }),
                HasSubstr("is there and no training of Headroom wrote it"));
  run.claim("metrics.jsonl");
  EXPECT_THROW(run.claim("model"), WriteError) << "also beside a run's own files";
  EXPECT_EQ(read_file(folder.path() / "config.yaml"), "mine: true\n");
}

// Versions before the list: their records tell.
TEST(RunFolder, KnowsAnOlderRunByItsRecords) {
  const TemporaryFolder folder;
  folder.write("metrics.jsonl", kRecord);
  folder.write("config.yaml", "lr: 1e-5\n");
  EXPECT_TRUE(is_of_a_run(folder.path(), "config.yaml"));
  folder.write("headroom-run.json", "damaged");
  EXPECT_TRUE(is_of_a_run(folder.path(), "config.yaml"));
  fs::remove(folder.path() / "headroom-run.json");
  ASSERT_TRUE(RunFolder(folder.path()).set_aside());
  EXPECT_TRUE(fs::exists(folder.path() / "earlier-1/config.yaml"));
  folder.write("metrics.jsonl", "{\"step\":1,\"accuracy\":0.5}\n");
  EXPECT_FALSE(is_run_folder(folder.path())) << "another program's metrics";
}

// A run that is killed while it moves an earlier one away would have split that in two.
TEST(RunFolder, FinishesAMoveThatWasInterrupted) {
  const TemporaryFolder folder;
  folder.write("headroom-run.json",
               R"({"schema":1,"files":["metrics.jsonl","best"],"moving_to":"earlier-1"})");
  folder.write("earlier-1/metrics.jsonl", kRecord);
  folder.write("best/checkpoint-00000007/state.json", "{}");
  folder.write("checkpoint-00000009/state.json", "{}");
  const RunFolder run(folder.path());
  EXPECT_TRUE(fs::exists(folder.path() / "earlier-1/best/checkpoint-00000007"));
  EXPECT_TRUE(fs::exists(folder.path() / "earlier-1/checkpoint-00000009"));
  EXPECT_FALSE(fs::exists(folder.path() / "headroom-run.json"));
}

TEST(RunFolder, NamesTheProcessThatWritesThere) {
  const TemporaryFolder folder;
  const RunFolder run(folder.path());
  EXPECT_THAT(refusal([&] { const RunFolder second(folder.path()); }),
              HasSubstr("another run writes in " + folder.path().string()));
  EXPECT_THROW(check_run_folder(folder.path(), {}), BusyError);
}

TEST(RunFolder, ListsCheckpointsTheNewestFirst) {
  const TemporaryFolder folder;
  for (const char* name : {"checkpoint-00000009", "checkpoint-100000000", "checkpoint-00000010",
                           "checkpoint-00000011.unfinished", "checkpoint-00000012.refused"})
    folder.write(fs::path(name) / "state.json", "{}");
  folder.write("checkpoint-00000013/why.txt", "the user's, and the rest was removed");
  std::vector<std::int64_t> steps;
  for (const CheckpointFolder& one : checkpoints_in(folder.path())) steps.push_back(one.step);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{100'000'000, 10, 9}));
  EXPECT_TRUE(is_half_written_checkpoint(folder.path() / "checkpoint-00000011.unfinished"));
  EXPECT_FALSE(is_half_written_checkpoint(folder.path() / "checkpoint-00000012.refused"));
}

}  // namespace
}  // namespace headroom

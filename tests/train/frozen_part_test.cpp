// The parameters of a run that are not trained, in one file for all checkpoints.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "headroom/base/error.h"
#include "headroom/base/run_folder.h"
#include "headroom/train/checkpoint.h"
#include "headroom/train/detail/frozen_part.h"
#include "headroom/weights/tensor_files.h"
#include "nets.h"
#include "tests/support/killed.h"
#include "tests/support/temporary_folder.h"

namespace headroom::train {
namespace {

using namespace literals;

namespace fs = std::filesystem;
using headroom::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// The head of a net is trained, and all below it is frozen.
Training head_alone() {
  return transformers_head(torch::kCPU, {.max_grad_norm = 1, .prices = false});
}

void train_a_step(Training& run, int step) {
  static_cast<void>(run.step->run(run.batch(step)));
}

std::vector<fs::path> frozen_parts(const fs::path& folder) {
  std::vector<fs::path> parts;
  for (const auto& entry : fs::directory_iterator(folder))
    if (is_frozen_part(entry.path())) parts.push_back(entry.path());
  return parts;
}

void change_a_frozen_weight(Training& run) {
  const torch::NoGradGuard no_grad;
  run.module->named_parameters()["words.weight"].mul_(2);
}

TEST(FrozenPart, IsInOneFileForAllCheckpoints) {
  const TemporaryFolder folder;
  Training run = head_alone();
  Checkpoints checkpoints(folder.path());
  for (int i = 0; i < 3; ++i) {
    train_a_step(run, i);
    checkpoints.save(*run.step);
  }
  checkpoints.wait();
  ASSERT_THAT(frozen_parts(folder.path()), SizeIs(1));
  const weights::TensorFile own(checkpoints.all()[0] / "model.safetensors");
  EXPECT_THAT(own.names(), ElementsAre("head.bias", "head.weight"));
  const weights::TensorFile frozen(frozen_parts(folder.path())[0]);
  EXPECT_EQ(frozen.names().size() + 2, run.module->parameters().size());
}

TEST(FrozenPart, IsWrittenOnce) {
  const TemporaryFolder folder;
  Training run = head_alone();
  Checkpoints checkpoints(folder.path());
  EXPECT_GT(checkpoints.frozen_bytes(*run.step), 0_B);
  train_a_step(run, 0);
  checkpoints.save(*run.step);
  const auto written = fs::last_write_time(frozen_parts(folder.path())[0]);
  EXPECT_EQ(checkpoints.frozen_bytes(*run.step), 0_B);
  train_a_step(run, 1);
  checkpoints.save(*run.step);
  checkpoints.wait();
  EXPECT_EQ(fs::last_write_time(frozen_parts(folder.path())[0]), written);

  Training again = head_alone();
  Checkpoints later(folder.path());
  ASSERT_TRUE(later.load(*again.step));
  EXPECT_EQ(later.frozen_bytes(*again.step), 0_B);
  train_a_step(again, 2);
  later.save(*again.step);
  later.wait();
  EXPECT_EQ(fs::last_write_time(frozen_parts(folder.path())[0]), written);
}

TEST(FrozenPart, ComesBackWithTheRest) {
  const TemporaryFolder folder;
  Training first = head_alone();
  change_a_frozen_weight(first);
  train_a_step(first, 0);
  Checkpoints(folder.path()).save(*first.step);
  Training second = head_alone();
  ASSERT_TRUE(Checkpoints(folder.path()).load(*second.step));
  expect_same(everything(second), everything(first));
}

TEST(FrozenPart, IsWrittenAgainAfterAChangeAndTheOldOneGoesWithItsCheckpoints) {
  const TemporaryFolder folder;
  Training run = head_alone();
  {
    Checkpoints checkpoints(folder.path());
    for (int i = 0; i < 2; ++i) {
      if (i == 1) change_a_frozen_weight(run);
      train_a_step(run, i);
      checkpoints.save(*run.step);
    }
  }
  EXPECT_THAT(frozen_parts(folder.path()), SizeIs(2)) << "both checkpoints are whole";
  Training again = head_alone();
  Checkpoints later(folder.path(), 1);
  ASSERT_TRUE(later.load(*again.step));
  expect_same(everything(again), everything(run));
  train_a_step(again, 2);
  later.save(*again.step);
  later.wait();
  EXPECT_THAT(frozen_parts(folder.path()), SizeIs(1));
  ASSERT_TRUE(later.load(*again.step));
}

TEST(FrozenPart, IsSharedByTheBestCheckpoint) {
  const TemporaryFolder folder;
  Training run = head_alone();
  const auto frozen = std::make_shared<detail::FrozenPart>(folder.path());
  Checkpoints last(folder.path(), 1, frozen), best(folder.path() / "best", 1, frozen);
  train_a_step(run, 0);
  best.save(*run.step);
  train_a_step(run, 1);
  last.save(*run.step);
  best.wait();
  last.wait();
  EXPECT_THAT(frozen_parts(folder.path()), SizeIs(1));
  EXPECT_THAT(frozen_parts(folder.path() / "best"), SizeIs(0));
  EXPECT_EQ(best.load_weights(*run.step), 1);
  fs::remove_all(last.all()[0]);
  Training again = head_alone();
  EXPECT_EQ(Checkpoints(folder.path()).load(*again.step, {folder.path() / "best"})->step, 1);
}

TEST(FrozenPart, MovesWithACopyOfTheFolder) {
  const TemporaryFolder folder;
  Training run = head_alone();
  train_a_step(run, 0);
  Checkpoints(folder.path() / "out").save(*run.step);
  fs::copy(folder.path() / "out", folder.path() / "copy", fs::copy_options::recursive);
  fs::remove_all(folder.path() / "out");
  Training again = head_alone();
  ASSERT_TRUE(Checkpoints(folder.path() / "copy").load(*again.step));
  expect_same(everything(again), everything(run));
}

// The error of a load, and that it has changed nothing.
std::string refusal(const fs::path& folder) {
  Training run = head_alone();
  const Tensors before = everything(run);
  std::string error = "none";
  try {
    static_cast<void>(Checkpoints(folder).load(*run.step));
  } catch (const InputError& refused) {
    error = refused.what();
  }
  expect_same(everything(run), before);
  return error;
}

TEST(FrozenPart, IsRefusedInWordsIfItIsMissingOrHasOtherContent) {
  const TemporaryFolder folder;
  Training run = head_alone();
  train_a_step(run, 0);
  Checkpoints(folder.path()).save(*run.step);
  const fs::path part = frozen_parts(folder.path())[0];
  {
    std::fstream bytes(part, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(static_cast<std::streamoff>(fs::file_size(part) - 5));
    bytes.put('\x55');
  }
  EXPECT_THAT(refusal(folder.path()), HasSubstr("its content is not what was written"));
  fs::remove(part);
  EXPECT_THAT(refusal(folder.path()), HasSubstr("expected the weights that are not trained in"));
  EXPECT_THAT(refusal(folder.path()), HasSubstr(part.filename().string()));
}

// Checkpoints before this file existed have all parameters themselves.
TEST(FrozenPart, IsNotNeededByOlderCheckpoints) {
  const TemporaryFolder folder;
  Training run = head_alone();
  train_a_step(run, 0);
  change_a_frozen_weight(run);
  for (const at::Tensor& parameter : run.module->parameters()) parameter.set_requires_grad(true);
  Checkpoints(folder.path()).save(*run.step);
  EXPECT_THAT(frozen_parts(folder.path()), SizeIs(0));
  Training again = head_alone();
  ASSERT_TRUE(Checkpoints(folder.path()).load(*again.step));
  expect_same(everything(again), everything(run));
}

// A process that saves each step is killed at a random moment, also while it writes the file.
TEST(FrozenPart, SurvivesKillsAtAnyMoment) {
  constexpr int kSteps = 8;
  at::set_num_threads(1);  // a forked process has one, and sums depend on their number
  const TemporaryFolder folder;
  const auto go_on = [&] {
    Training run = head_alone();
    Checkpoints checkpoints(folder.path());
    const auto found = checkpoints.load(*run.step);
    for (auto i = static_cast<int>(found ? found->step : 0); i < kSteps; ++i) {
      train_a_step(run, i);
      checkpoints.save(*run.step);
    }
    checkpoints.wait();
  };
  run_with_kills(5, 33'000, go_on);
  EXPECT_THAT(frozen_parts(folder.path()), SizeIs(1));
  Training ours = head_alone();
  EXPECT_EQ(Checkpoints(folder.path()).load(*ours.step)->step, kSteps);
  const Tensors loaded = everything(ours);
  Training right = head_alone();
  for (int i = 0; i < kSteps; ++i) train_a_step(right, i);
  expect_same(loaded, everything(right));
}

}  // namespace
}  // namespace headroom::train

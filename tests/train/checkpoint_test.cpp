#include "headroom/train/checkpoint.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/sha256.h"
#include "headroom/sim/simulate.h"
#include "headroom/train/detail/checkpoint_files.h"
#include "headroom/weights/tensor_files.h"
#include "nets.h"
#include "tests/support/killed.h"
#include "tests/support/temporary_folder.h"

namespace headroom::train {
namespace {

namespace fs = std::filesystem;
using headroom::testing::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::SizeIs;

void train(Training& run, int from, int to) {
  for (int i = from; i < to; ++i) static_cast<void>(run.step->run(run.batch(i)));
}

const StepOptions kPlain{.max_grad_norm = 1, .prices = false};

TEST(Checkpoints, GoOnAsIfTheRunHadNotStopped) {
  for (const auto make : {transformer, convolutions}) {
    const TemporaryFolder folder;
    Training right = make(torch::kCPU, kPlain);
    train(right, 0, 5);
    const Tensors expected = everything(right);
    {
      Training first = make(torch::kCPU, kPlain);
      train(first, 0, 3);
      Checkpoints(folder.path()).save(*first.step, "batch 3");
    }
    Training second = make(torch::kCPU, kPlain);
    const auto found = Checkpoints(folder.path()).load(*second.step);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->step, 3);
    EXPECT_EQ(found->more, "batch 3");
    EXPECT_TRUE(found->same_random_numbers);
    train(second, 3, 5);
    EXPECT_EQ(second.step->steps(), 5);
    expect_same(everything(second), expected);
  }
}

// Those of 0.1 have states under the numbers of parameters.
TEST(Checkpoints, OfOlderVersionsAreRead) {
  const TemporaryFolder folder;
  Training first = transformer(torch::kCPU, kPlain);
  train(first, 0, 3);
  Checkpoints(folder.path()).save(*first.step);
  const fs::path checkpoint = Checkpoints(folder.path()).all().at(0);
  weights::NamedTensors states;
  for (std::size_t i = 0; i < first.optimizer->parameters().size(); ++i)
    for (const auto& [name, state] : first.optimizer->state(i))
      states.emplace_back(std::to_string(i) + "." + name, state);
  ASSERT_FALSE(states.empty());
  weights::save_tensors(checkpoint / detail::kOptimizer, states);
  Json state = parse_json(read_input(checkpoint / detail::kState), "state.json");
  state["sha256"].erase(detail::kState);
  state["sha256"][detail::kOptimizer] = sha256_of_file(checkpoint / detail::kOptimizer);
  state["sha256"][detail::kState] = detail::hash_of(state);
  write_file_atomically(checkpoint / detail::kState, state.dump(1));

  Training second = transformer(torch::kCPU, kPlain);
  const auto found = Checkpoints(folder.path()).load(*second.step);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->same_optimizer);
  expect_same(everything(second), everything(first));
}

TEST(Checkpoints, GoOnUnderAnotherPlanAndOnAnotherDevice) {
  const TemporaryFolder folder;
  const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
  {
    Training first = transformer(torch::kCPU, kPlain);
    train(first, 0, 2);
    Checkpoints(folder.path()).save(*first.step);
  }
  StepOptions options = kPlain;
  options.plan.micro_batch = 3;
  Training second = transformer(box.device(0), options);
  const auto found = Checkpoints(folder.path()).load(*second.step);
  ASSERT_TRUE(found);
  EXPECT_EQ(second.step->run(second.batch(2)).step, 3);
  EXPECT_TRUE(second.optimizer->state(0).at("exp_avg").device() == box.device(0));
}

TEST(Checkpoints, KeepTheLastOnes) {
  const TemporaryFolder folder;
  Training run = convolutions(torch::kCPU, kPlain);
  Checkpoints checkpoints(folder.path(), 2);
  for (int i = 0; i < 5; ++i) {
    train(run, i, i + 1);
    checkpoints.save(*run.step);
  }
  checkpoints.wait();
  ASSERT_THAT(checkpoints.all(), SizeIs(2));
  EXPECT_EQ(checkpoints.all()[0].filename(), "checkpoint-00000005");
  EXPECT_EQ(checkpoints.all()[1].filename(), "checkpoint-00000004");
}

TEST(Checkpoints, RefuseATornOneAndTakeTheOneBefore) {
  for (const char* file :
       {"model.safetensors", "optimizer.safetensors", "random.safetensors", "state.json"}) {
    SCOPED_TRACE(file);
    const TemporaryFolder folder;
    Training run = convolutions(torch::kCPU, kPlain);
    Checkpoints checkpoints(folder.path());
    for (int i = 0; i < 2; ++i) {
      train(run, i, i + 1);
      checkpoints.save(*run.step);
    }
    checkpoints.wait();
    fs::resize_file(checkpoints.all()[0] / file, fs::file_size(checkpoints.all()[0] / file) - 10);
    Training again = convolutions(torch::kCPU, kPlain);
    const auto found = checkpoints.load(*again.step);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->step, 1);
    ASSERT_THAT(found->refused, SizeIs(1));
    EXPECT_THAT(found->refused[0], HasSubstr("checkpoint-00000002"));
  }
}

TEST(Checkpoints, RefuseAByteThatChangedAndAnotherModel) {
  const TemporaryFolder folder;
  Training run = convolutions(torch::kCPU, kPlain);
  train(run, 0, 1);
  Checkpoints checkpoints(folder.path());
  checkpoints.save(*run.step);
  checkpoints.wait();
  Training other = transformer(torch::kCPU, kPlain);
  const Tensors before = everything(other);
  EXPECT_THROW(static_cast<void>(checkpoints.load(*other.step)), InputError);
  expect_same(everything(other), before);
  const fs::path file = checkpoints.all()[0] / "model.safetensors";
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekp(static_cast<std::streamoff>(fs::file_size(file) - 5));
  bytes.put('\x55');
  bytes.close();
  EXPECT_THROW(static_cast<void>(checkpoints.load(*run.step)), InputError);
}

TEST(Checkpoints, AreNothingInAnEmptyFolder) {
  const TemporaryFolder folder;
  Training run = convolutions(torch::kCPU, kPlain);
  EXPECT_FALSE(Checkpoints(folder.path() / "new").load(*run.step));
}

// A process that trains and saves each step is killed at a random moment, also while it saves. The
// next one goes on; in the end the weights are those of a run that was never killed.
TEST(Checkpoints, SurviveKillsAtAnyMoment) {
  constexpr int kSteps = 12;
  at::set_num_threads(1);  // a forked process has one, and sums depend on their number
  const TemporaryFolder folder;
  const auto go_on = [&] {
    Training run = convolutions(torch::kCPU, kPlain);
    Checkpoints checkpoints(folder.path());
    const auto found = checkpoints.load(*run.step);
    for (auto i = static_cast<int>(found ? found->step : 0); i < kSteps; ++i) {
      train(run, i, i + 1);
      checkpoints.save(*run.step);
    }
    checkpoints.wait();
  };
  run_with_kills(7, 65'000, go_on);
  Training ours = convolutions(torch::kCPU, kPlain);
  EXPECT_EQ(Checkpoints(folder.path()).load(*ours.step)->step, kSteps);
  const Tensors loaded = everything(ours);
  Training right = convolutions(torch::kCPU, kPlain);
  train(right, 0, kSteps);
  expect_same(loaded, everything(right));
}

}  // namespace
}  // namespace headroom::train

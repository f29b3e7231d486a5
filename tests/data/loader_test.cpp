#include "headroom/data/loader.h"

#include <gmock/gmock.h>

#include <torch/torch.h>
#include <thread>

#include <atomic>
#include <filesystem>
#include <numeric>
#include <stdexcept>

#include "headroom/base/error.h"
#include "headroom/libtorch/on.h"

namespace headroom::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Its examples are their own number and what their seed makes of it; some are broken.
class Numbers : public Dataset {
 public:
  explicit Numbers(std::int64_t size) : size_(size) {}
  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] Tensors example(std::int64_t index, std::uint64_t seed) const override {
    ++made;
    if (index == broken) throw InputError("numbers", "number " + std::to_string(index));
    return {torch::full({2}, index, torch::kLong),
            torch::scalar_tensor(static_cast<double>(seed >> 11), torch::kDouble)};
  }
  std::atomic<std::int64_t> broken{-1};
  mutable std::atomic<std::int64_t> made{0};

 private:
  std::int64_t size_;
};

std::shared_ptr<Numbers> numbers(std::int64_t size) {
  return std::make_shared<Numbers>(size);
}

std::vector<std::int64_t> indices_of(const Batch& batch) {
  const torch::Tensor column = batch.tensors[0].select(1, 0).contiguous();
  return {column.const_data_ptr<std::int64_t>(),
          column.const_data_ptr<std::int64_t>() + column.numel()};
}

std::vector<Batch> take(Loader& loader, std::int64_t batches) {
  std::vector<Batch> taken;
  for (std::int64_t i = 0; i < batches; ++i) taken.push_back(loader.next());
  return taken;
}

void expect_equal(const std::vector<Batch>& ours, const std::vector<Batch>& right) {
  ASSERT_EQ(ours.size(), right.size());
  for (std::size_t i = 0; i < right.size(); ++i) {
    EXPECT_EQ(ours[i].begin, right[i].begin);
    EXPECT_EQ(ours[i].examples, right[i].examples);
    EXPECT_EQ(ours[i].ends_epoch, right[i].ends_epoch);
    for (std::size_t k = 0; k < right[i].tensors.size(); ++k)
      EXPECT_TRUE(torch::equal(ours[i].tensors[k], right[i].tensors[k])) << i;
  }
}

std::size_t threads_of_this_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

// ---- Order ----

TEST(Loader, StacksExamplesInTheirOrder) {
  Loader loader(numbers(5), {.batch_size = 2});
  const Batch batch = loader.next();
  EXPECT_THAT(batch.tensors[0].sizes(), ElementsAre(2, 2));
  EXPECT_THAT(batch.tensors[1].sizes(), ElementsAre(2));
  EXPECT_THAT(indices_of(batch), ElementsAre(0, 1));
  EXPECT_EQ(batch.tensors[1].scalar_type(), torch::kDouble);
}

TEST(Loader, GoesOnIntoTheNextEpoch) {
  for (const int workers : {0, 2}) {
    Loader loader(numbers(5), {.batch_size = 2, .workers = workers});
    EXPECT_EQ(loader.batches_per_epoch(), 3);
    const auto batches = take(loader, 4);
    EXPECT_THAT(indices_of(batches[2]), ElementsAre(4));
    EXPECT_TRUE(batches[2].ends_epoch);
    EXPECT_FALSE(batches[3].ends_epoch);
    EXPECT_EQ(batches[3].begin, (Position{1, 0}));
    EXPECT_THAT(indices_of(batches[3]), ElementsAre(0, 1));
  }
}

TEST(Loader, LeavesOutASmallLastBatchIfAsked) {
  Loader loader(numbers(5), {.batch_size = 2, .drop_last = true});
  EXPECT_EQ(loader.batches_per_epoch(), 2);
  const auto batches = take(loader, 3);
  EXPECT_TRUE(batches[1].ends_epoch);
  EXPECT_EQ(batches[2].begin, (Position{1, 0}));
}

TEST(Loader, ShufflesEachEpochInAnotherWayAndLosesNothing) {
  Loader loader(numbers(50), {.batch_size = 7, .shuffle = true, .seed = 3});
  std::vector<std::vector<std::int64_t>> epochs(2);
  for (const Batch& batch : take(loader, 2 * loader.batches_per_epoch()))
    for (const std::int64_t index : indices_of(batch))
      epochs.at(static_cast<std::size_t>(batch.begin.epoch)).push_back(index);
  std::vector<std::int64_t> all(50);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_NE(epochs[0], epochs[1]);
  for (const auto& epoch : epochs) {
    EXPECT_NE(epoch, all);
    EXPECT_THAT(epoch, ::testing::UnorderedElementsAreArray(all));
  }
}

TEST(Loader, GivesTheSameBatchesWithAnyNumberOfThreads) {
  Loader alone(numbers(23), {.batch_size = 4, .shuffle = true, .seed = 9, .workers = 0});
  const auto right = take(alone, 15);
  for (const int workers : {1, 2, 5}) {
    Loader loader(numbers(23),
                  {.batch_size = 4, .shuffle = true, .seed = 9, .workers = workers, .ahead = 7});
    expect_equal(take(loader, 15), right);
  }
}

TEST(Loader, GivesAnExampleAnotherSeedInEachEpoch) {
  Loader loader(numbers(1), {.seed = 1});
  const auto batches = take(loader, 3);
  EXPECT_FALSE(torch::equal(batches[0].tensors[1], batches[1].tensors[1]));
  EXPECT_FALSE(torch::equal(batches[1].tensors[1], batches[2].tensors[1]));
}

// ---- Position ----

TEST(LoaderPosition, GoesOnAtEveryCutWithAnyNumberOfThreads) {
  constexpr std::int64_t kBatches = 12;
  LoaderOptions options{.batch_size = 3, .shuffle = true, .seed = 5, .workers = 0};
  for (const bool drop_last : {false, true}) {
    options.drop_last = drop_last;
    Loader whole(numbers(11), options);
    const auto right = take(whole, kBatches);
    for (std::int64_t cut = 0; cut <= kBatches; ++cut)
      for (const int workers : {0, 1, 3}) {
        LoaderOptions others = options;
        others.workers = workers;
        Loader first(numbers(11), others), second(numbers(11), options);
        take(first, cut);
        second.set_position(first.position());
        expect_equal(take(second, kBatches - cut), {right.begin() + cut, right.end()});
      }
  }
}

TEST(LoaderPosition, DoesNotCountWhatTheThreadsHaveMade) {
  const auto set = numbers(100);
  Loader loader(set, {.batch_size = 2, .workers = 2, .ahead = 8});
  static_cast<void>(loader.next());
  while (set->made < 16) std::this_thread::yield();
  EXPECT_EQ(loader.position(), (Position{0, 2}));
}

TEST(LoaderPosition, CanGoBack) {
  Loader loader(numbers(10), {.batch_size = 2, .shuffle = true, .workers = 2});
  const auto first = take(loader, 3);
  loader.set_position({0, 0});
  expect_equal(take(loader, 3), first);
}

TEST(LoaderPosition, MayBeTheEndOfAnEpoch) {
  Loader loader(numbers(4), {.batch_size = 2});
  loader.set_position({2, 4});
  EXPECT_EQ(loader.position(), (Position{3, 0}));
}

TEST(LoaderPosition, RefusesPlacesThatAreNone) {
  Loader loader(numbers(4), {});
  for (const Position place : {Position{-1, 0}, Position{0, -1}, Position{0, 5}})
    EXPECT_THROW(loader.set_position(place), UsageError);
}

// ---- Failures, threads and memory ----

TEST(LoaderErrors, ComeOutOfTheNextThatWouldHaveReturnedTheBatch) {
  for (const int workers : {0, 3}) {
    const auto set = numbers(20);
    set->broken = 5;
    Loader loader(set, {.batch_size = 2, .workers = workers, .ahead = 6});
    take(loader, 2);
    for (int i = 0; i < 2; ++i) {
      EXPECT_THROW(static_cast<void>(loader.next()), InputError);
      EXPECT_EQ(loader.position(), (Position{0, 4}));
    }
    set->broken = -1;
    EXPECT_THAT(indices_of(loader.next()), ElementsAre(4, 5));
  }
}

class Uneven : public Numbers {
 public:
  using Numbers::Numbers;
  [[nodiscard]] Tensors example(std::int64_t index, std::uint64_t /*seed*/) const override {
    if (index < 2) return {torch::zeros({2 + index})};
    if (index < 4) return {torch::zeros({2}, index == 2 ? torch::kFloat : torch::kLong)};
    if (index < 6) return Tensors(static_cast<std::size_t>(index - 3), torch::zeros({2}));
    return {torch::zeros({2}, torch::kMeta)};
  }
};

TEST(LoaderErrors, NameWhatDoesNotStack) {
  for (const std::int64_t at : {0, 2, 4, 6}) {
    Loader loader(std::make_shared<Uneven>(8), {.batch_size = 2});
    loader.set_position({0, at});
    EXPECT_THROW(static_cast<void>(loader.next()), UsageError) << at;
  }
}

TEST(LoaderErrors, NameOptionsThatMakeNoSense) {
  EXPECT_THROW(Loader(nullptr, {}), UsageError);
  EXPECT_THROW(Loader(numbers(0), {}), UsageError);
  EXPECT_THROW(Loader(numbers(3), {.batch_size = 0}), UsageError);
  EXPECT_THROW(Loader(numbers(3), {.workers = -1}), UsageError);
  EXPECT_THROW(Loader(numbers(3), {.ahead = 0}), UsageError);
  EXPECT_THROW(Loader(numbers(3), {.batch_size = 4, .drop_last = true}), UsageError);
}

TEST(LoaderThreads, EndWithTheLoader) {
  std::thread([] {}).join();  // the thread sanitizer starts one of its own with the first
  const std::size_t before = threads_of_this_process();
  for (int i = 0; i < 20; ++i) {
    const auto set = numbers(1000);
    if (i % 3 == 0) set->broken = 1;
    Loader loader(set, {.batch_size = 2, .workers = 3, .ahead = 5});
    if (i % 2 == 0) {
      try {
        static_cast<void>(loader.next());
        EXPECT_EQ(threads_of_this_process(), before + 3);
      } catch (const InputError&) {
      }
    }
  }
  EXPECT_EQ(threads_of_this_process(), before);
}

TEST(LoaderThreads, AreNoneWithoutWorkers) {
  const std::size_t before = threads_of_this_process();
  Loader loader(numbers(10), {.workers = 0});
  static_cast<void>(loader.next());
  EXPECT_EQ(threads_of_this_process(), before);
}

// Two examples of 16 + 8 bytes make a batch. `made` counts the examples that were begun.
TEST(LoaderMemory, IsThatOfTheBatchesAhead) {
  constexpr std::int64_t kBatchBytes = 2 * (16 + 8);
  for (const std::int64_t batches : {1, 3}) {
    const auto set = numbers(1000);
    Loader loader(set, {.batch_size = 2,
                        .workers = 4,
                        .ahead = 8,
                        .most_bytes = Bytes{batches * kBatchBytes + kBatchBytes - 1}});
    for (std::int64_t taken = 1; taken < 50; ++taken) {
      static_cast<void>(loader.next());
      EXPECT_LE(set->made, 2 * (taken + batches));
    }
    while (set->made < 2 * (49 + batches)) std::this_thread::yield();
  }
}

TEST(LoaderMemory, IsTheHostsInsideAScopeThatMovesNewTensors) {
  Loader loader(numbers(4), {.batch_size = 2, .workers = 2});
  const libtorch::OnDeviceScope scope(torch::kMeta);
  EXPECT_TRUE(loader.next().tensors[0].is_cpu());
}

TEST(LoaderMemory, IsPlainWithoutACard) {
  Loader loader(numbers(4), {.batch_size = 2, .pinned = true});
  EXPECT_FALSE(loader.next().tensors[0].is_pinned());
}

}  // namespace
}  // namespace headroom::data

#include "headroom/train/retry.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/libtorch/on.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"

namespace headroom::train {
namespace {

using namespace literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Throws;
using torch::Tensor;

// A card of 100 MiB: batches of up to 64 rows of 1 MiB fit.
struct RetryCard {
  sim::Simulation box = sim::simulate("100MiB");

  Tensor batch(std::int64_t rows) const { return torch::empty({rows, 1 << 18}, box.device(0)); }
};

// What the handler said, and the sizes that the function got.
struct Story {
  std::vector<std::string> events;
  std::vector<std::int64_t> sizes;

  [[nodiscard]] std::function<void(const Event&)> listener() {
    return [this](const Event& event) {
      events.push_back(std::to_string(event.step) + " " + to_string(event.kind) + " " +
                       std::to_string(event.from.micro_batch) + " " +
                       std::to_string(event.to.micro_batch));
    };
  }
};

// ---- OomHandler

TEST(OomHandler, GivesTheFunctionItsSizeAndReturnsItsResult) {
  OomHandler handler;
  EXPECT_EQ(handler.run([](std::int64_t size) { return std::to_string(size); }), "128");
  EXPECT_EQ(*handler.run([](std::int64_t size) { return std::make_unique<std::int64_t>(size); }),
            128);
  int calls = 0;
  handler.run([&](std::int64_t) { ++calls; });
  EXPECT_EQ(calls, 1);
}

TEST(OomHandler, TriesTheSameSizeOnceMoreThenHalvesAndKeepsTheSize) {
  const RetryCard card;
  Story story;
  OomHandler handler({.on_event = story.listener()});
  const auto train = [&](std::int64_t size) {
    story.sizes.push_back(size);
    return card.batch(size).size(0);
  };
  EXPECT_EQ(handler.run(train), 64);
  EXPECT_EQ(handler.run(train), 64);
  EXPECT_EQ(handler.batch_size(), 64);
  EXPECT_THAT(story.sizes, ElementsAre(128, 128, 64, 64));
  EXPECT_THAT(story.events,
              ElementsAre("1 oom 128 128", "1 retry 128 128", "1 oom 128 128", "1 shrink 128 64"));
}

TEST(OomHandler, ASpuriousRefusalCostsNoSize) {
  const RetryCard card;
  OomHandler handler({.initial_batch_size = 64});
  const sim::InjectionScope scope(card.box.card(0), sim::once(1));
  EXPECT_EQ(handler.run([&](std::int64_t size) { return card.batch(size).size(0); }), 64);
}

TEST(OomHandler, SaysWhatTheFailedRequestAsked) {
  const RetryCard card;
  std::vector<Event> events;
  OomHandler handler({.on_event = [&](const Event& event) { events.push_back(event); }});
  handler.run([&](std::int64_t size) { card.batch(size); });
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events[0].asked, 128_MiB);
  EXPECT_TRUE(events[0].free.has_value());
}

TEST(OomHandler, NeverGoesBelowItsSmallestSize) {
  Story story;
  OomHandler handler({.initial_batch_size = 20, .min_batch_size = 4});
  const auto fail = [&](std::int64_t size) {
    story.sizes.push_back(size);
    TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate 2.00 GiB.");
  };
  EXPECT_THROW(handler.run(fail), c10::OutOfMemoryError);
  EXPECT_THAT(story.sizes, ElementsAre(20, 20, 10, 5, 4));
}

TEST(OomHandler, KnowsMemoryOfTheHostAndOfLibraries) {
  const std::vector<std::function<void()>> failures{
      [] {
        TORCH_CHECK(false,
                    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't "
                    "allocate memory: you tried to allocate 400000000000 bytes. Error code 12");
      },
      [] { throw std::bad_alloc(); },
      [] {
        throw std::runtime_error(
            "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`");
      },
      [] { throw std::runtime_error("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"); }};
  for (std::size_t i = 0; i < failures.size(); ++i) {
    OomHandler handler;
    handler.run([&](std::int64_t size) {
      if (size > 64) failures[i]();
    });
    EXPECT_EQ(handler.batch_size(), 64) << i;
  }
}

TEST(OomHandler, OtherFailuresPassThroughAtOnce) {
  Story story;
  OomHandler handler({.on_event = story.listener()});
  int calls = 0;
  const auto fail = [&](std::int64_t) {
    ++calls;
    throw std::out_of_range("a bug");
  };
  EXPECT_THAT([&] { handler.run(fail); },
              Throws<std::out_of_range>(
                  ::testing::Property(&std::out_of_range::what, ::testing::StrEq("a bug"))));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(handler.batch_size(), 128);
  EXPECT_THAT(story.events, IsEmpty());
}

TEST(OomHandler, TheCacheIsEmptyBeforeTheNextTry) {
  const RetryCard card;
  std::vector<std::int64_t> reserved;
  OomHandler handler;
  handler.run([&](std::int64_t) {
    reserved.push_back(card.box.card(0).statistics().reserved_bytes.all.current);
    card.batch(60);
    if (reserved.size() == 1) throw std::bad_alloc();
  });
  EXPECT_THAT(reserved, ElementsAre(0, 0));
}

TEST(OomHandler, RunsAgainAfterABackwardPassThatFailed) {
  const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
  auto net = libtorch::on(box.device(0), [] { return torch::nn::Linear(8, 1); });
  OomHandler handler;
  int tries = 0;
  const auto gradient = [&](std::int64_t rows) {
    net->zero_grad();
    const Tensor loss = net->forward(torch::ones({rows, 8}, box.device(0))).sum();
    std::optional<sim::InjectionScope> refused;
    if (++tries <= 2) refused.emplace(box.card(0), sim::once(1));
    loss.backward();
    return net->weight.grad().cpu();
  };
  EXPECT_TRUE(torch::equal(handler.run(gradient), torch::full({1, 8}, 64.0F)));
}

TEST(OomHandler, UndoesNothing) {
  OomHandler handler;
  Tensor weight = torch::zeros({1});
  handler.run([&](std::int64_t size) {
    weight.add_(1);
    if (size > 32) throw std::bad_alloc();
  });
  EXPECT_EQ(weight.item<int>(), 4);
}

TEST(OomHandler, GrowsBackAfterCleanCalls) {
  Story story;
  OomHandler handler({.initial_batch_size = 100, .grow_after = 2, .on_event = story.listener()});
  std::int64_t most = 25;
  const auto train = [&](std::int64_t size) {
    story.sizes.push_back(size);
    if (size > most) throw std::bad_alloc();
  };
  handler.run(train);
  most = 100;
  for (int i = 0; i < 8; ++i) handler.run(train);
  EXPECT_THAT(story.sizes, ElementsAre(100, 100, 50, 25, 25, 25, 50, 50, 100, 100, 100, 100));
  EXPECT_EQ(story.events.back(), "6 grow 50 100");
}

TEST(OomHandler, RefusesSizesThatMakeNoSense) {
  EXPECT_THROW(OomHandler({.initial_batch_size = 2}), UsageError);
  EXPECT_THROW(OomHandler({.initial_batch_size = 2, .min_batch_size = 0}), UsageError);
  EXPECT_THROW(OomHandler({.grow_after = -1}), UsageError);
}

// ---- adaptive_batch_training

TEST(AdaptiveBatchTraining, StartsAnewWithHalfTheBatchAndReturnsTheResult) {
  const RetryCard card;
  Story story;
  const double loss = adaptive_batch_training(
      [&](std::int64_t size) {
        for (int i = 0; i < 3; ++i) {
          story.sizes.push_back(size);
          card.batch(i < 2 ? 8 : size);  // the third batch is the first large one
        }
        return 0.5;
      },
      {.initial_batch_size = 128});
  EXPECT_EQ(loss, 0.5);
  EXPECT_THAT(story.sizes, ElementsAre(128, 128, 128, 128, 128, 128, 64, 64, 64));
}

// ---- retry_on_oom

TEST(RetryOnOom, CallsAgainAndReturnsTheResult) {
  Story story;
  int calls = 0;
  const auto load = [&] {
    if (++calls < 4) throw std::bad_alloc();
    return std::make_unique<int>(calls);
  };
  EXPECT_EQ(*retry_on_oom(load, {.max_retries = 3, .on_event = story.listener()}), 4);
  EXPECT_THAT(story.events, ElementsAre("1 oom 0 0", "1 retry 0 0", "1 oom 0 0", "1 retry 0 0",
                                        "1 oom 0 0", "1 retry 0 0"));
}

TEST(RetryOnOom, ThrowsTheLastFailureItself) {
  int calls = 0;
  const auto fail = [&] {
    ++calls;
    throw OutOfMemoryError({"load", "no memory"}, Bytes{calls});
  };
  for (const int retries : {0, 3}) {
    calls = 0;
    EXPECT_THAT(
        [&] { retry_on_oom(fail, {.max_retries = retries}); },
        Throws<OutOfMemoryError>(::testing::Field(&OutOfMemoryError::asked, Bytes{retries + 1})));
  }
  EXPECT_THROW(retry_on_oom(fail, {.max_retries = -1}), UsageError);
}

TEST(RetryOnOom, WhatTheListenerFreesIsThere) {
  const RetryCard card;
  Tensor others = card.batch(60);
  const Tensor mine =
      retry_on_oom([&] { return card.batch(60); },
                   {.max_retries = 1, .on_event = [&](const Event&) { others.reset(); }});
  EXPECT_EQ(mine.size(0), 60);
}

TEST(RetryOnOom, OtherFailuresPassThroughAtOnce) {
  int calls = 0;
  const auto fail = [&] {
    ++calls;
    throw std::runtime_error("a bug");
  };
  EXPECT_THROW(retry_on_oom(fail), std::runtime_error);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace headroom::train

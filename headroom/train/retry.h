// Runs a function again after it has run out of memory, with a smaller batch or as it is.
//
//   train::OomHandler handler({.initial_batch_size = 128, .min_batch_size = 4});
//   for (int i = 0; i < epochs; ++i)
//     loss = handler.run([&](std::int64_t batch_size) { return train_epoch(batch_size); });
//
//   auto net = train::retry_on_oom([&] { return load(file); }, {.max_retries = 3});
//
//   train::adaptive_batch_training([&](std::int64_t batch_size) { train(batch_size); });
//
// The function runs again from its start, and nothing is undone: parameters that it has updated
// stay updated, gradients stay, random numbers stay used, and a loop over data begins again. A
// smaller batch also trains differently. So the function should make the objects that it changes,
// or load them. A training step that is undone, and keeps its effective batch, is train::Step
// (step.h).
//
// Memory may be that of a card or of the host; libtorch/failure.h says which errors count. After
// each out-of-memory the backward pass that failed has ended on all devices (libtorch/settle.h),
// and the allocators' caches are empty. Every other exception passes through. Results are returned
// by value.
//
// Events are those of a step (event.h): `step` counts the calls, from 1, and the plans' micro-batch
// is the batch size. on_event runs before the function does again: it may free memory, or wait.
//
// Threads: one handler, one thread at a time. Threads that the function starts must have ended, or
// wait, when it throws.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "headroom/train/event.h"

namespace headroom::train {

struct OomHandlerOptions {
  std::int64_t initial_batch_size = 128;
  std::int64_t min_batch_size = 4;
  // Calls in a row without an out-of-memory before the batch is doubled again, up to the initial
  // size. 0: it stays small.
  std::int64_t grow_after = 0;
  std::function<void(const Event&)> on_event = {};
};

struct RetryOptions {
  int max_retries = 3;
  std::function<void(const Event&)> on_event = {};
};

namespace detail {

// Calls `call(n)` through `repeat`, and returns its last result.
template <typename Call, typename Repeat>
auto last_result(Call& call, const Repeat& repeat) {
  using Result = std::remove_cvref_t<std::invoke_result_t<Call&, std::int64_t>>;
  if constexpr (std::is_void_v<Result>) {
    repeat([&](std::int64_t n) { call(n); });
  } else {
    std::optional<Result> result;
    repeat([&](std::int64_t n) { result.emplace(call(n)); });
    return std::move(*result);
  }
}

void retry(const std::function<void(std::int64_t)>& call, const RetryOptions& options);

}  // namespace detail

class OomHandler {
 public:
  // Throws UsageError for sizes that make no sense.
  explicit OomHandler(OomHandlerOptions options = {});

  // Calls `function` with the batch size, and returns its result. After an out-of-memory it calls
  // it once more with the same size, because a neighbour may have had a short peak, then with half
  // of it, and so on. Throws the failure itself if the smallest size fails.
  template <typename Function>
  auto run(Function&& function) {
    return detail::last_result(function, [this](const auto& call) { run_until_it_fits(call); });
  }

  // Stays between calls: the next one begins with it.
  [[nodiscard]] std::int64_t batch_size() const { return batch_size_; }

 private:
  void run_until_it_fits(const std::function<void(std::int64_t)>& call);
  void change_size(Event::Kind kind, std::int64_t size);
  void grow();

  OomHandlerOptions options_;
  std::int64_t batch_size_;
  std::int64_t calls_ = 0, clean_calls_ = 0;  // clean: in a row, without an out-of-memory
};

// Calls `function()` until it returns, with at most `max_retries` calls after the first, and
// returns its result. Throws the last failure itself.
template <typename Function>
auto retry_on_oom(Function&& function, const RetryOptions& options = {}) {
  const auto call = [&](std::int64_t) { return function(); };
  return detail::last_result(call, [&](const auto& repeated) { detail::retry(repeated, options); });
}

// A whole training with the largest of these batch sizes that fits: OomHandler(options).run(fn).
template <typename Function>
auto adaptive_batch_training(Function&& function, const OomHandlerOptions& options = {}) {
  return OomHandler(options).run(function);
}

}  // namespace headroom::train

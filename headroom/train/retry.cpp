#include "headroom/train/retry.h"

#include <algorithm>
#include <exception>
#include <string>

#include "headroom/base/error.h"
#include "headroom/libtorch/failure.h"
#include "headroom/libtorch/random_state.h"
#include "headroom/libtorch/settle.h"
#include "headroom/memory/clear.h"

namespace headroom::train {
namespace {

using Call = std::function<void(std::int64_t)>;
using Listener = std::function<void(const Event&)>;

void tell(const Listener& listener, const Event& event) {
  if (listener) listener(event);
}

// The call's out-of-memory; null if the call has returned. Throws every other failure.
std::exception_ptr out_of_memory_in(const Call& call, std::int64_t number, Event event,
                                    const Listener& listener) {
  std::exception_ptr failure;
  try {
    call(number);
  } catch (...) {
    failure = std::current_exception();
  }
  if (!failure) return nullptr;
  const oom::Judgement cause = libtorch::judge(failure);
  if (!oom::is_out_of_memory(cause)) std::rethrow_exception(failure);
  libtorch::settle(libtorch::devices_in_use());
  // Pinned memory that waits for its next use is the host's.
  memory::clear_gpu_memory(/*force=*/cause.verdict == oom::Verdict::host_oom);
  event.kind = Event::Kind::oom;
  event.asked = cause.asked;
  event.free = cause.free;
  event.cached = cause.cached;
  tell(listener, event);
  return failure;
}

}  // namespace

// ---- retry_on_oom ----

void detail::retry(const Call& call, const RetryOptions& options) {
  if (options.max_retries < 0)
    throw UsageError(
        expectation("retry_on_oom", "0 retries or more", std::to_string(options.max_retries)));
  for (int tries = 1;; ++tries) {
    const auto failure = out_of_memory_in(call, tries, {.step = 1}, options.on_event);
    if (!failure) return;
    if (tries > options.max_retries) std::rethrow_exception(failure);
    tell(options.on_event, {.kind = Event::Kind::retry, .step = 1});
  }
}

// ---- OomHandler ----

OomHandler::OomHandler(OomHandlerOptions options)
    : options_(std::move(options)), batch_size_(options_.initial_batch_size) {
  if (options_.min_batch_size < 1 || options_.initial_batch_size < options_.min_batch_size)
    throw UsageError(expectation("OomHandler",
                                 "a smallest batch of 1 or more, and a first one not below it",
                                 std::to_string(options_.min_batch_size) + " and " +
                                     std::to_string(options_.initial_batch_size)));
  if (options_.grow_after < 0)
    throw UsageError(expectation("OomHandler", "0 calls or more before the batch grows",
                                 std::to_string(options_.grow_after)));
}

void OomHandler::change_size(Event::Kind kind, std::int64_t size) {
  const Plan from{.micro_batch = batch_size_}, to{.micro_batch = size};
  batch_size_ = size;
  tell(options_.on_event, {.kind = kind, .step = calls_, .from = from, .to = to});
}

void OomHandler::grow() {
  if (options_.grow_after == 0 || clean_calls_ < options_.grow_after) return;
  clean_calls_ = 0;
  if (batch_size_ < options_.initial_batch_size)
    change_size(Event::Kind::grow, std::min(2 * batch_size_, options_.initial_batch_size));
}

void OomHandler::run_until_it_fits(const Call& call) {
  ++calls_;
  grow();
  const auto try_now = [&] {
    const Plan now{.micro_batch = batch_size_};
    return out_of_memory_in(call, batch_size_, {.step = calls_, .from = now, .to = now},
                            options_.on_event);
  };
  int failures = 0;
  while (const std::exception_ptr failure = try_now()) {
    if (++failures == 1)
      change_size(Event::Kind::retry, batch_size_);
    else if (batch_size_ > options_.min_batch_size)
      change_size(Event::Kind::shrink, std::max(batch_size_ / 2, options_.min_batch_size));
    else
      std::rethrow_exception(failure);
  }
  clean_calls_ = failures == 0 ? clean_calls_ + 1 : 0;
}

}  // namespace headroom::train

// One run of a training step on a simulated card made for it, with its requests to the allocator.
// Replaying the requests shows at once how the same run would have gone on another card.
//
//   const StepRun run = run_steps(card, make, 2, {});
//   run.fits;                                      // no request was refused
//   is_served(run.requests, run.card_at_start);    // the same answer, from the allocator alone
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "headroom/allocator/caching_allocator.h"
#include "headroom/allocator/operation.h"
#include "headroom/base/bytes.h"
#include "headroom/dryrun/dry_run.h"
#include "headroom/gpu/simulated.h"

namespace headroom::dryrun {

// Makes model, optimizer and batch on a device, and the step to run.
using MakeSubject = std::function<Subject(c10::Device)>;

// Requests to an allocator in order. Two runs of one program at two sizes mostly make the same
// requests in the same order, with different bytes.
using Requests = std::vector<allocator::Operation>;

struct StepRun {
  bool fits = false;
  Bytes peak_reserved;  // of the steps, as in a dry run's report
  Requests requests;    // until the first refused one
  Bytes lasting;        // alive at the end: weights, optimizer, batch
  Bytes gradients;      // total size of the trained parameters
  allocator::CachingAllocator card_at_start;
};

// Runs `make`, then `steps` steps, on a shape-only card that enforces its capacity. Throws the
// exceptions of both, except the card's own out-of-memory error.
[[nodiscard]] StepRun run_steps(const gpu::SimulatedCard& card, const MakeSubject& make, int steps,
                                const CardOptions& options);

// Growth of the bytes of requests with the size.
struct Growth {
  int power = 1;  // highest power of the size: 2 for a length, because of attention
  // For a chunked loss: tokens per unit of size, and tokens per chunk. 0: not chunked.
  std::int64_t tokens = 0, chunk = 0;

  [[nodiscard]] double last_chunk(std::int64_t size) const;
};

// A card like this device, with the memory that this process may use of it: free and reserved.
[[nodiscard]] gpu::SimulatedCard card_like(c10::Device device);

// The same card with unlimited memory.
[[nodiscard]] gpu::SimulatedCard without_limit(const gpu::SimulatedCard& card);

// ---- Replays on an allocator alone ----

// A new allocator with the settings of `card` and this capacity.
[[nodiscard]] allocator::CachingAllocator with_capacity(const allocator::CachingAllocator& card,
                                                        Bytes capacity);
[[nodiscard]] bool is_served(const Requests& requests, allocator::CachingAllocator card);
// Since the last reset of the peaks, as in StepRun. Continues after a refused request, so the card
// must be unlimited to give a useful figure.
[[nodiscard]] Bytes peak_reserved(const Requests& requests, allocator::CachingAllocator card);
// The smallest card that serves them lies between these two figures of one replay.
struct CardBounds {
  Bytes at_least, at_most;  // the peaks of allocated and of reserved memory
  Bytes requested;          // the peak of what tensors take, without the allocator's rounding
};
[[nodiscard]] CardBounds card_bounds(const Requests& requests,
                                     const allocator::CachingAllocator& card);
// The smallest card with the settings of `card` that serves them, in steps of 2 MiB.
[[nodiscard]] Bytes smallest_card(const Requests& requests,
                                  const allocator::CachingAllocator& card);

}  // namespace headroom::dryrun

// One run of a training step on a simulated card made for it, and what it asked of the card's
// allocator: enough to know at once how the same run would have gone on another card.
//
//   const StepRun run = run_steps(card, make, 2, {});
//   run.fits;                                      // nothing was refused
//   is_served(run.requests, run.card_at_start);    // the same, found by asking the allocator alone
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

namespace headroom::estimate {

// Makes model, optimizer and batch on a device, and the step that is run.
using MakeSubject = std::function<dryrun::Subject(c10::Device)>;

// What was asked of an allocator, one after the other. Two runs of one program at two sizes mostly
// ask the same in the same order, and only the bytes differ.
using Requests = std::vector<allocator::Operation>;

struct StepRun {
  bool fits = false;
  Bytes peak_reserved;  // of the steps, as a dry run's report has it
  Requests requests;    // until the first that was refused
  Bytes lasting;        // alive at the end: weights, optimizer, batch
  Bytes gradients;      // as large as the trained parameters
  allocator::CachingAllocator card_at_start;
};

// `make`, then so many steps, on a shape-only card with its capacity enforced. Throws what these
// throw, but for an out-of-memory of the card.
[[nodiscard]] StepRun run_steps(const gpu::SimulatedCard& card, const MakeSubject& make, int steps,
                                const dryrun::CardOptions& options);

// How the bytes of requests may grow with the size.
struct Growth {
  int power = 1;  // with which power of it at most: 2 for a length, because of attention
  // Of a loss by chunks: tokens for each of the size, and at a time. 0: it is in one.
  std::int64_t tokens = 0, chunk = 0;

  [[nodiscard]] double last_chunk(std::int64_t size) const;
};

// The same card with more memory than any has.
[[nodiscard]] gpu::SimulatedCard without_limit(const gpu::SimulatedCard& card);

// ---- Asking an allocator alone ----

[[nodiscard]] bool is_served(const Requests& requests, allocator::CachingAllocator card);
// Since the last reset of the peaks, as StepRun has it. Kept on from a refusal, which then says
// little: for cards without limit.
[[nodiscard]] Bytes peak_reserved(const Requests& requests, allocator::CachingAllocator card);

}  // namespace headroom::estimate

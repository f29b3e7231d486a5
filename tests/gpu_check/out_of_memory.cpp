// A training step under every limit of memory, from none to all that it takes. The limit is the
// share of the card that the process may reserve (set_per_process_memory_fraction in Python): real
// refusals of the allocator, at each request that asks the driver for memory.
#include <ATen/ATen.h>

#include <exception>
#include <set>

#include "headroom/libtorch/failure.h"
#include "headroom/memory/clear.h"
#include "headroom/memory/device_memory.h"
#include "headroom/oom/judgement.h"
#include "tests/gpu_check/check.h"
#include "tests/gpu_check/training.h"

namespace headroom::gpu_check {
namespace {

constexpr std::int64_t kSegments = 2 << 20;  // the allocator's segments are multiples of it

std::int64_t requests(c10::Device device) {
  return memory::memory_of(device).statistics(device.index()).allocation[0].allocated;
}

std::int64_t reserved(c10::Device device) {
  return memory::memory_of(device).statistics(device.index()).reserved_bytes[0].current;
}

struct Limited {
  bool refused = false;
  std::int64_t served = 0;  // requests before the refusal
  std::string complaint;
};

// One step with so much memory beyond what the training holds at its start, and where that was too
// little another one without limit.
Limited step_within(Place& place, c10::Device device, std::int64_t bytes,
                    const std::vector<at::Tensor>& right) {
  Training training(device);
  (void)memory::clear_gpu_memory(true);
  const std::vector<at::Tensor> before = training.values();
  const std::int64_t start = requests(device);
  Limited limited;
  place.limit(Bytes{reserved(device) + bytes});
  try {
    training.step();
  } catch (...) {
    limited.refused = true;
    const oom::Judgement judgement = libtorch::judge(std::current_exception());
    if (judgement.verdict != oom::Verdict::gpu_oom)
      limited.complaint = "the refusal was not recognised: " + judgement.evidence;
  }
  limited.served = requests(device) - start;
  place.limit({});
  if (limited.refused) {
    training.give_up();
    if (!equal_to_the_bit(training.values(), before))
      limited.complaint = "the refused step changed parameters or states";
    training.step();
  }
  if (!equal_to_the_bit(training.values(), right))
    limited.complaint = "the result is not that of a step without limit";
  return limited;
}

}  // namespace

Outcome check_out_of_memory(Place& place) {
  const c10::Device device = place.open();
  std::int64_t in_all = 0;
  const std::vector<at::Tensor> right = [&] {
    Training training(device);
    (void)memory::clear_gpu_memory(true);
    const std::int64_t start = requests(device);
    training.step();
    in_all = requests(device) - start;
    return training.values();
  }();
  std::set<std::int64_t> refused_after;
  std::int64_t limits = 0, complaints = 0;
  std::string first;
  for (std::int64_t bytes = 0;; bytes += kSegments, ++limits) {
    const Limited limited = step_within(place, device, bytes, right);
    if (!limited.complaint.empty() && complaints++ == 0)
      first = limited.complaint + " (with " + to_string(Bytes{bytes}) + ")";
    if (!limited.refused) break;
    refused_after.insert(limited.served);
  }
  const auto indices = static_cast<std::int64_t>(refused_after.size());
  Json figures{{"limits", limits},
               {"refused_requests", refused_after},
               {"requests_of_a_step", in_all},
               {"complaints", complaints}};
  const std::string words = std::to_string(limits) + " limits, refused at " +
                            std::to_string(indices) + " of " + std::to_string(in_all) +
                            " requests, each repeated to the same bits";
  if (complaints > 0)
    return failed(
        std::to_string(complaints) + " of " + std::to_string(limits) + " limits: " + first,
        std::move(figures));
  if (indices < 3) return failed("only " + words, std::move(figures));
  return passed(words, std::move(figures));
}

}  // namespace headroom::gpu_check

// A training step that runs out of memory at every place where it can: first under every limit of
// memory, from none to all that it takes, then with nothing more from each operator on that asks
// for memory. Limits are the share of the card that the process may reserve
// (set_per_process_memory_fraction in Python), so these are real refusals of the allocator.
#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <atomic>
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
constexpr std::int64_t kMost = 1 << 30;      // far more than the small step takes

std::int64_t requests(c10::Device device) {
  return memory::memory_of(device).statistics(device.index()).allocation[0].allocated;
}

Bytes reserved(c10::Device device) {
  return Bytes{memory::memory_of(device).statistics(device.index()).reserved_bytes[0].current};
}

// ---- From an operator on

// Before operator number `at` the cache goes back to the driver, and from then on the process may
// reserve no more. 0: never.
struct End {
  Place* place;
  c10::Device device;
  std::size_t at;
  std::vector<std::int64_t> requests_before{};  // each operator
};
std::atomic<End*> end_ahead = nullptr;

std::unique_ptr<at::ObserverContext> before_operator(const at::RecordFunction&) {
  End* const end = end_ahead;
  if (end == nullptr) return nullptr;
  end->requests_before.push_back(requests(end->device));
  if (end->requests_before.size() == end->at) {
    memory::memory_of(end->device).empty_cache();
    end->place->limit(reserved(end->device));
  }
  return nullptr;
}

class EndScope {
 public:
  explicit EndScope(End& end)
      : callback_(at::addGlobalCallback(
            at::RecordFunctionCallback(&before_operator)
                .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}))) {
    end_ahead = &end;
  }
  ~EndScope() {
    end_ahead = nullptr;
    at::removeCallback(callback_);
  }
  EndScope(const EndScope&) = delete;
  EndScope& operator=(const EndScope&) = delete;

 private:
  at::CallbackHandle callback_;
};

// ---- One step that may be refused

// All refusals of a training, and what was wrong with them.
struct Trials {
  Place& place;
  const c10::Device device;
  const TrainingSizes sizes;
  std::vector<at::Tensor> right;  // after a step without limit
  std::int64_t requests_of_step = 0, tries = 0, refusals = 0;
  std::set<std::int64_t> refused_after{};  // so many requests
  std::vector<std::string> complaints{};

  Trials(Place& at, c10::Device on, const TrainingSizes& of) : place(at), device(on), sizes(of) {
    Training training(device, sizes);
    (void)memory::clear_gpu_memory(true);
    const std::int64_t start = requests(device);
    training.step();
    requests_of_step = requests(device) - start;
    right = training.values();
  }

  // Runs `step` of a new training, and if it was refused another one without limit. True if it was
  // refused.
  bool refused(const std::string& how, const std::function<void(Training&)>& step);
};

bool Trials::refused(const std::string& how, const std::function<void(Training&)>& step) {
  Training training(device, sizes);
  (void)memory::clear_gpu_memory(true);
  const std::vector<at::Tensor> before = training.values();
  const std::int64_t start = requests(device);
  bool was_refused = false;
  try {
    step(training);
  } catch (...) {
    was_refused = true;
    const oom::Judgement judgement = libtorch::judge(std::current_exception());
    if (judgement.verdict != oom::Verdict::gpu_oom)
      complaints.push_back(how + ": not recognised: " + judgement.evidence);
  }
  const std::int64_t served = requests(device) - start;
  place.limit({});
  ++tries;
  if (was_refused) {
    ++refusals;
    refused_after.insert(served);
    training.give_up();
    if (!equal_to_the_bit(training.values(), before))
      complaints.push_back(how + ": the refused step changed parameters or states");
    training.step();
  }
  if (!equal_to_the_bit(training.values(), right))
    complaints.push_back(how + ": the result is not that of a step without limit");
  return was_refused;
}

void under_every_limit(Trials& trials) {
  for (std::int64_t bytes = 0; bytes < kMost; bytes += kSegments)
    if (!trials.refused("with " + to_string(Bytes{bytes}), [&](Training& training) {
          trials.place.limit(reserved(trials.device) + Bytes{bytes});
          training.step();
        }))
      return;
  trials.complaints.push_back("a step is refused even with " + to_string(Bytes{kMost}));
}

// The operators that ask the allocator for memory, counted from 1.
std::vector<std::size_t> asking(Trials& trials) {
  End never{&trials.place, trials.device, 0};
  (void)trials.refused("watched", [&](Training& training) {
    const EndScope scope(never);
    training.step();
  });
  std::vector<std::size_t> operators;
  for (std::size_t i = 1; i < never.requests_before.size(); ++i)
    if (never.requests_before[i] > never.requests_before[i - 1]) operators.push_back(i);
  return operators;
}

// Returns the number of these operators.
std::size_t from_each_operator_on(Trials& trials) {
  const std::vector<std::size_t> operators = asking(trials);
  for (const std::size_t at : operators) {
    End end{&trials.place, trials.device, at};
    (void)trials.refused("from operator " + std::to_string(at) + " on", [&](Training& training) {
      const EndScope scope(end);
      training.step();
    });
  }
  return operators.size();
}

Json figures_of(const Trials& trials) {
  return {{"tries", trials.tries},
          {"refusals", trials.refusals},
          {"refused_after_requests", trials.refused_after},
          {"requests_of_a_step", trials.requests_of_step},
          {"complaints", trials.complaints.size()}};
}

std::string words_of(const Trials& trials) {
  return std::to_string(trials.refusals) + " refusals at " +
         std::to_string(trials.refused_after.size()) + " of " +
         std::to_string(trials.requests_of_step) + " requests";
}

}  // namespace

Outcome check_out_of_memory(Place& place) {
  const c10::Device device = place.open();
  Trials limits(place, device, {});
  under_every_limit(limits);
  // On a real card most tensors are large enough for segments of their own.
  Trials ends(place, device,
              place.is_simulated()
                  ? TrainingSizes{.layers = 1}
                  : TrainingSizes{.layers = 1, .width = 512, .rows = 32, .tokens = 256});
  const std::size_t operators = from_each_operator_on(ends);

  std::vector<std::string> complaints = limits.complaints;
  complaints.insert(complaints.end(), ends.complaints.begin(), ends.complaints.end());
  constexpr std::size_t kFewest = 5;
  if (limits.refused_after.size() < kFewest || ends.refused_after.size() < kFewest)
    complaints.emplace_back("too few requests were refused");
  if (complaints.size() > 3) complaints.resize(3);  // the figures have all
  return judged(complaints,
                words_of(limits) + " under " + std::to_string(limits.tries) + " limits, " +
                    words_of(ends) + " from each of " + std::to_string(operators) +
                    " operators on that ask for memory; each step repeated to the same bits",
                {{"limits", figures_of(limits)}, {"operators", figures_of(ends)}});
}

}  // namespace headroom::gpu_check

#include "headroom/train/detail/alone.h"

#include "headroom/base/error.h"

namespace headroom::train::detail {
namespace {

thread_local bool in_a_step = false;

}  // namespace

Alone::Alone(std::atomic<bool>& runs) : runs_(runs) {
  if (in_a_step)
    throw UsageError(expectation("Step::run", "one step after the other",
                                 "one inside of a loss, or of a listener, of another",
                                 "calling it when the first has returned"));
  if (runs.exchange(true))
    throw UsageError(expectation("Step::run", "one thread at a time", "a second one",
                                 "a lock around it, or a step for each thread"));
  in_a_step = true;
}

Alone::~Alone() {
  in_a_step = false;
  runs_ = false;
}

}  // namespace headroom::train::detail

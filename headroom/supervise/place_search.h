// Finds a place for a job among the cards of a shared machine, and watches over it from one try to
// the next.
//
// Thread rule: the calling thread's; while it waits, the signals of Interrupt end the wait. They
// have to be held back where it is made, so that its sampler's threads get none.
//
//   PlaceSearch search(orders, listener);
//   PlaceSearch::Answer answer = search.find({.need = 10_GiB});
//   if (!answer.place) say(answer.sentence);
#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "headroom/base/interrupt.h"
#include "headroom/gpu/cuda_order.h"
#include "headroom/lease/acquire.h"
#include "headroom/lease/outer_lease.h"
#include "headroom/supervise/place.h"
#include "headroom/supervise/supervisor.h"

namespace headroom::supervise {

class PlaceSearch {
 public:
  // On the CPU there is nothing to search. Throws what the lease folder and the cards' source do.
  PlaceSearch(const Orders& orders, const Listener& listener);

  struct Wish {
    Bytes need;            // on each card
    bool is_known = true;  // nobody knows: all that is usable of the cards is reserved
    Seconds timeout{0};
  };
  struct Answer {
    std::optional<Place> place;
    // Without a place:
    Outcome outcome = Outcome::busy;  // or no_cards, cancelled
    int exit_code = 0;                // if cancelled
    std::string sentence;
    Seconds waited{0};
  };
  // Inside another `run` the place is that one's lease, and nothing is reserved. Throws UsageError
  // if orders.need is more than that lease has.
  [[nodiscard]] Answer find(const Wish& wish);

  // The lease of a `run` above this one, if that is where the job runs.
  [[nodiscard]] const std::optional<lease::OuterLease>& outer() const { return outer_; }

  // A place is kept from one try to the next; what the last one used comes back in steps. Empty, or
  // the exit code of the signal that ended the wait.
  [[nodiscard]] std::optional<int> wait_until_memory_is_back(const Place& place);

  // Half of the smallest card.
  [[nodiscard]] Bytes half_a_card();

  // What is known of the cards now, without waiting; a fresh look.
  [[nodiscard]] gpu::Machine known() const;
  [[nodiscard]] gpu::Machine fresh();

 private:
  [[nodiscard]] bool on_cards() const { return sampler_ != nullptr; }
  [[nodiscard]] gpu::Machine narrowed(gpu::Machine machine) const;
  void find_outer();
  [[nodiscard]] gpu::WaitOptions wait_options(const Wish& wish,
                                              const std::stop_token& cancel) const;
  lease::Acquired acquire(const Wish& wish, const std::stop_token& cancel);
  lease::Acquired within_outer(const Wish& wish, const std::stop_token& cancel);
  void explain(const lease::Acquired& acquired, Answer& answer) const;

  const Orders& orders_;
  const Listener& listener_;
  const gpu::CudaEnvironment environment_ = gpu::CudaEnvironment::current();
  std::optional<lease::Directory> directory_;
  std::unique_ptr<gpu::Sampler> sampler_;  // none on the CPU
  std::optional<lease::OuterLease> outer_;
};

}  // namespace headroom::supervise

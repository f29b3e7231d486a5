// Finds a place for a job among the cards of a shared machine.
//
// Thread rule: everything happens in the calling thread. The signals of Interrupt end a wait; block
// them (SignalsHeld) before making a PlaceSearch, so that its sampler's threads get none.
//
//   PlaceSearch search(orders, listener);
//   PlaceAnswer answer = search.find({.need = 10_GiB});
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
#include "headroom/supervise/orders.h"
#include "headroom/supervise/places.h"

namespace headroom::supervise {

class PlaceSearch : public Places {
 public:
  // Opens the lease folder and the cards' source, unless the job runs on the CPU, and throws their
  // errors.
  PlaceSearch(const Orders& orders, const Listener& listener);

  // Inside another `run` the place is that one's lease, and nothing is reserved. Throws UsageError
  // if orders.need is more than that lease has.
  [[nodiscard]] PlaceAnswer find(const PlaceWish& wish) override;
  [[nodiscard]] std::optional<int> wait_until_memory_is_back(const Place& place) override;
  [[nodiscard]] gpu::Machine fresh() override;
  [[nodiscard]] bool is_inside_lease() const override { return outer_.has_value(); }

  // The last sample, without waiting.
  [[nodiscard]] gpu::Machine known() const;

 private:
  [[nodiscard]] bool on_cards() const { return sampler_ != nullptr; }
  [[nodiscard]] gpu::Machine narrowed(gpu::Machine machine) const;
  void find_outer();
  [[nodiscard]] gpu::WaitOptions wait_options(const PlaceWish& wish,
                                              const std::stop_token& cancel) const;
  lease::Acquired acquire(const PlaceWish& wish, const std::stop_token& cancel);
  lease::Acquired within_outer(const PlaceWish& wish, const std::stop_token& cancel);
  void explain(const lease::Acquired& acquired, PlaceAnswer& answer) const;

  const Orders& orders_;
  const Listener& listener_;
  const gpu::CudaEnvironment environment_ = gpu::CudaEnvironment::current();
  std::optional<lease::Directory> directory_;
  std::unique_ptr<gpu::Sampler> sampler_;  // none on the CPU
  std::optional<lease::OuterLease> outer_;
};

}  // namespace headroom::supervise

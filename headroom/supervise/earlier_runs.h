// What earlier runs of a job showed: how much it used, and the batch that worked where a larger one
// did not. The store of plans (store.h), asked by the job's command and its cards.
//
//   const EarlierRuns earlier(knobs);
//   if (const auto need = earlier.need(machine)) reserve(*need);
//   if (const auto begin = earlier.beginning(place, 1)) start_with(begin->batch);
#pragma once

#include <map>
#include <optional>
#include <string>

#include "headroom/edit/knobs.h"
#include "headroom/gpu/card.h"
#include "headroom/supervise/place.h"
#include "headroom/supervise/store.h"

namespace headroom::supervise {

class EarlierRuns {
 public:
  // The knobs outlive it.
  explicit EarlierRuns(const edit::Knobs& knobs);

  // What the command used when it worked before, and a tenth more, on any of these cards, however
  // full they are now. Never more than it had then: some programs take all there is.
  [[nodiscard]] std::optional<Bytes> need(const gpu::Machine& machine) const;

  // A smaller batch than the command's that worked on such a place, with the accumulation that
  // keeps the effective batch. Nothing with much more memory than it was found with.
  struct Beginning {
    long long batch, accumulation;
    WallTime when;
    std::map<std::string, long long> stored;
  };
  [[nodiscard]] std::optional<Beginning> beginning(const Place& place, long long min_batch) const;

  // These throw WriteError.
  void remember_batch(const Place& place, long long batch, long long accumulation,
                      std::optional<Bytes> peak) const;
  void remember_use(const Place& place, Bytes peak) const;
  void forget(const Place& place, const Beginning& beginning) const;

 private:
  // What the command uses belongs to it word for word; its batch, to the command with any batch.
  [[nodiscard]] std::string as_it_stands() const;

  const edit::Knobs& knobs_;
  const Store store_;
};

}  // namespace headroom::supervise

// Results of a job's earlier runs, from the store (store.h) by the job's command and its cards: the
// memory it used, and the batch that worked where a larger one did not.
//
//   const EarlierRuns earlier(knobs);
//   if (const auto need = earlier.need(machine)) reserve(*need);
//   if (const auto begin = earlier.beginning(place, 1)) start_with(begin->batch);
#pragma once

#include <map>
#include <optional>
#include <string>

#include "headroom/edit/knobs.h"
#include "headroom/gpu/machine.h"
#include "headroom/plan/store.h"
#include "headroom/supervise/place.h"

namespace headroom::supervise {

class EarlierRuns {
 public:
  // The knobs must outlive it.
  explicit EarlierRuns(const edit::Knobs& knobs);

  // The memory that the command used when it worked before plus a tenth, the most on any of these
  // cards, however full they are now. Never more than it could use then: some programs take all
  // memory.
  [[nodiscard]] std::optional<Bytes> need(const gpu::Machine& machine) const;

  // A smaller batch than the command's that worked in such a place, with the accumulation that
  // keeps the effective batch. std::nullopt if the place has much more memory than when it was
  // found.
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
  // The key for memory use: the exact command. The key for a batch is the command without its
  // values.
  [[nodiscard]] std::string exact_command() const;

  const edit::Knobs& knobs_;
  const plan::Store store_;
};

}  // namespace headroom::supervise

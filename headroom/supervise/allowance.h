// The memory that this process may have of each card of a shared machine, by its lease. That is a
// lease of its own, which can grow and shrink with the need of the process, or the lease in which a
// `headroom run` started it, which stays as it is.
//
//   auto allowance = Allowance::find(devices, descriptor);
//   if (!allowance) return;                           // no lease: nothing limits this process
//   allowance->on(card, held).most;                   // bytes, including those it holds already
//   if (!allowance->reserve(card, 2_GiB, held)) ...;  // others have it now
//
// All bytes are as the driver counts them, a CUDA context included.
//
// Thread rule: that of gpu::Sampler for the samples; otherwise one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "headroom/gpu/devices.h"
#include "headroom/gpu/sampler.h"
#include "headroom/lease/directory.h"
#include "headroom/lease/outer_lease.h"

namespace headroom::supervise {

class Allowance {
 public:
  // `own`: the descriptor of a lease that this process holds. Without one the lease that
  // HEADROOM_LEASE names counts, if it has any of these cards. std::nullopt if neither exists, or
  // the folder cannot be read.
  [[nodiscard]] static std::optional<Allowance> find(const gpu::Devices& devices,
                                                     std::optional<int> own);

  struct OnCard {
    Bytes reserved;  // by the lease
    Bytes used;      // by this process
    // The memory that this process could have now: its lease and the growth that is possible, less
    // what other processes of the lease use, and no more than others have left of the card.
    Bytes most;
  };
  // `held`: the memory that the process knows to hold on the card. The driver may not show it.
  [[nodiscard]] OnCard on(const gpu::Uuid& card, Bytes held);

  // Makes the share of this card in its own lease so large. False if there is not this much memory
  // beside all others and earlier waiters, if the folder is not writable or the lease has ended:
  // then nothing changed. In an outer lease: whether that has this much memory.
  [[nodiscard]] bool reserve(const gpu::Uuid& card, Bytes bytes, Bytes held);
  // Ends the share of this card in its own lease; the others stay.
  void leave(const gpu::Uuid& card);

  // True for an outer lease, and for one of its own that has ended: reserve() changes nothing.
  [[nodiscard]] bool is_fixed() const { return !has_own(); }
  // One sentence, once, when the lease was ended from outside.
  [[nodiscard]] std::optional<std::string> news();

 private:
  Allowance(lease::Directory directory, const gpu::Devices& devices);
  [[nodiscard]] bool has_own() const { return own_ && !own_->ended_by(); }
  [[nodiscard]] Bytes reserved(const gpu::Uuid& card) const;
  void change(const lease::Directory::Turn& turn, const gpu::Uuid& card, Bytes bytes);

  lease::Directory directory_;
  std::unique_ptr<gpu::Sampler> sampler_;
  std::optional<lease::Lease> own_;
  std::optional<lease::OuterLease> outer_;
  bool told_ = false;
};

}  // namespace headroom::supervise

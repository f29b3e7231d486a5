// Disturbances on demand, to test how a program behaves when memory runs out: small values,
// combined and installed on a card or on all cards of a box, for the lifetime of a scope.
//
//   const InjectionScope scope(box, in_phase(trace::Phase::backward, once(3)));
//   const InjectionScope other(box.card(1), any_of({every(100), neighbour(0.3)}));
//
// A refused request looks like one that does not fit: c10::OutOfMemoryError with PyTorch's text,
// counted in num_ooms, recorded. The text gives the true free memory, which may be large. An
// injector counts the requests it is asked about: inside in_phase(...) those of the phase, from its
// installation on.
//
// Threads: one injector may be installed on several cards that are used at the same time; it counts
// the requests of them all.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/sim/card.h"
#include "headroom/sim/simulate.h"

namespace headroom::sim {

// ---- Refusals ----

// The K-th request, from 1. A retry succeeds: spurious failures look like this, too.
[[nodiscard]] Injector once(std::uint64_t k);

// Ends a lasting refusal, from any thread. Copies are the same switch.
class Lift {
 public:
  void now() const { lifted_->store(true); }
  [[nodiscard]] bool done() const { return lifted_->load(); }

 private:
  std::shared_ptr<std::atomic<bool>> lifted_ = std::make_shared<std::atomic<bool>>(false);
};
// The K-th request, and then every request at least as large, until lifted.
[[nodiscard]] Injector lasting(std::uint64_t k, Lift lift = {});

// The request `first` and every n-th after it.
[[nodiscard]] Injector every(std::uint64_t n, std::uint64_t first);
[[nodiscard]] Injector every(std::uint64_t n);

// Each request with this probability. The same seed refuses the same requests of each card,
// independent of other cards.
[[nodiscard]] Injector randomly(double probability, std::uint64_t seed);

// ---- A neighbour ----

// Another process holds this share of the card (0.3 of its capacity) from the first request on.
[[nodiscard]] Injector neighbour(double share);
// From request number `request` on it holds `share`, until the next change; 0 returns all.
struct NeighbourChange {
  std::uint64_t request = 1;
  double share = 0;
};
[[nodiscard]] Injector neighbour(std::vector<NeighbourChange> changes);

// ---- Where and when ----

[[nodiscard]] Injector on_card(int index, Injector injector);
// Phase and step are those of the card's recorder.
[[nodiscard]] Injector in_phase(trace::Phase phase, Injector injector);
[[nodiscard]] Injector at_step(std::uint32_t step, Injector injector);
// Asks all of them; a request is refused if one refuses it.
[[nodiscard]] Injector any_of(std::vector<Injector> injectors);

// Whether an injector has refused a request, or let a neighbour in. Copies share the same state.
class Happened {
 public:
  void now() const { happened_->store(true); }
  [[nodiscard]] bool at_all() const { return happened_->load(); }

 private:
  std::shared_ptr<std::atomic<bool>> happened_ = std::make_shared<std::atomic<bool>>(false);
};
[[nodiscard]] Injector noted(Injector injector, Happened happened);

// "oom@K", "oom@K:lasting", "oom@K:every=N", "oom@step=S", "oom@step=S:phase=backward",
// "neighbour@step=S:30%". Refuses the first request of a step (or of its phase); a neighbour comes
// with the step and stays. With ":card=1" at the end it counts and disturbs the requests of that
// card alone. Throws UsageError.
[[nodiscard]] Injector parse_injection(std::string_view text, Lift lift = {});

// ---- Installing ----

class InjectionScope {
 public:
  InjectionScope(Card& card, const Injector& injector);
  InjectionScope(const Simulation& box, const Injector& injector);  // on every card
  ~InjectionScope();  // restores the previous injector; the neighbour is gone
  InjectionScope(const InjectionScope&) = delete;
  InjectionScope& operator=(const InjectionScope&) = delete;

 private:
  void install(Card& card, const Injector& injector);
  void put_back() noexcept;
  std::vector<std::pair<std::shared_ptr<Card>, Injector>> before_;
};

// ---- Fragmentation ----

// Fragments a card's memory: takes `bytes` in pieces of `hole` bytes and returns every other piece.
// Half of it is free then, but no request larger than a hole can have it, and the driver does not
// get it back (unless segments are expandable). Pieces up to 10 MiB share segments of 20 MiB;
// larger ones have one each and leave no holes.
class Fragments {
 public:
  Fragments(Card& card, Bytes bytes, Bytes hole);
  ~Fragments();
  Fragments(const Fragments&) = delete;
  Fragments& operator=(const Fragments&) = delete;

 private:
  std::shared_ptr<Card> card_;
  std::vector<allocator::BlockId> held_;
};

}  // namespace headroom::sim

// One of the processes of lease_stress (stress.cpp): it takes leases in a loop, uses them, and in
// some rounds kills itself at a random point.
#pragma once

#include <atomic>
#include <filesystem>
#include <optional>
#include <random>

#include "headroom/gpu/sampler.h"
#include "headroom/lease/ledger.h"
#include "tests/lease/fixtures/shared_card.h"

namespace headroom::lease {

struct Settings {
  int processes = 64, rounds = 1000, cards = 1, kill_percent = 20;
  unsigned seed = 1;
  bool naive = false;
};

// Counters that all processes share.
struct Counts {
  std::atomic<long long> rounds{0}, leases{0}, refused{0}, timed_out{0}, errors{0};
};

struct World {
  Settings settings;
  fixtures::Cards* cards = nullptr;
  Counts* counts = nullptr;
  std::filesystem::path folder;
};

class Worker {
 public:
  Worker(const World& world, fixtures::Slot& slot, unsigned seed);
  void round();

 private:
  int below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }
  std::optional<Lease> honest();
  std::optional<Lease> naive();
  void use(Lease lease);
  void hold();
  void set_used(const Claim& claim, int part, int of);

  const World& world_;
  fixtures::Slot& slot_;
  std::minstd_rand random_;
  const Directory directory_;
  gpu::Sampler sampler_;
};

}  // namespace headroom::lease

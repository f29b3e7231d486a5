// Samples cards in the background, so that a hung driver never blocks the program.
//
// One worker thread reads all cards: memory at `interval`, process lists at `process_interval`. A
// process list costs milliseconds inside the driver; if it costs more than 5 ms, the worker reads
// it less often. A call that does not return within `hang_after` marks its card as stuck, and a new
// worker continues with the other cards. If the call ever returns, the card is sampled again.
//
// Thread rule: every member function may be called from any thread. fresh() waits no longer than
// its `patience`, the destructor at most 0.1 s. snapshot() and fresh() rethrow an exception of the
// source's open().
//
//   Sampler sampler(make_nvml_source());
//   Machine machine = sampler.fresh();          // a sample that is newer than this call
//   while (running) draw(sampler.snapshot());   // the latest data, at once
#pragma once

#include <memory>

#include "headroom/gpu/source.h"

namespace headroom::gpu {

struct SamplerOptions {
  Seconds interval{1.0};          // between samples of memory
  Seconds process_interval{1.0};  // between process lists; `processes` = false: only once
  bool processes = true;
  bool activity = false;      // also read how busy each process was
  bool keep_sampling = true;  // false: only when fresh() asks
  Seconds hang_after{1.0};
};

class Sampler {
 public:
  explicit Sampler(std::shared_ptr<CardSource> source, SamplerOptions options = {});
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // The latest data, without waiting. No cards until the driver has answered for the first time.
  [[nodiscard]] Machine snapshot() const;

  // Requests a new sample of everything and waits until each card has one or is stuck, or until
  // `patience` has passed. The ages of the cards show which samples are late.
  [[nodiscard]] Machine fresh(Seconds patience = Seconds(3.0));

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with workers that may outlive this object
};

}  // namespace headroom::gpu

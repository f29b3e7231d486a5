// Samples cards in the background, so that a driver that hangs never takes the program with it.
//
// One worker thread reads all cards: memory at `interval`, process lists at `process_interval`
// (they cost milliseconds inside the driver; when one costs more than 5 ms they are asked more
// rarely). A call that does not come back within `hang_after` marks its card as stuck, and a new
// worker goes on with the other cards; should the call ever return, the card is alive again.
//
// Thread rule: every member function may be called from any thread. None of them waits for a driver
// call longer than it is told; the destructor waits for 0.1 s at most. What the source's open()
// threw is thrown by snapshot() and fresh().
//
//   Sampler sampler(make_nvml_source());
//   Machine machine = sampler.fresh();          // a sample that is newer than this call
//   while (running) draw(sampler.snapshot());   // what is known, at once
#pragma once

#include <memory>

#include "headroom/gpu/source.h"

namespace headroom::gpu {

struct SamplerOptions {
  Seconds interval{1.0};          // between samples of memory
  Seconds process_interval{1.0};  // between process lists; `processes` = false: only once
  bool processes = true;
  bool activity = false;      // and how busy each process was
  bool keep_sampling = true;  // false: only when fresh() asks
  Seconds hang_after{1.0};
};

class Sampler {
 public:
  explicit Sampler(std::shared_ptr<CardSource> source, SamplerOptions options = {});
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // What is known now, without waiting. Before the driver has answered for the first time: no
  // cards.
  [[nodiscard]] Machine snapshot() const;

  // Asks for a new sample of everything and waits until each card has one, or is stuck, or
  // `patience` is over. What did not come in time shows in the cards' ages.
  [[nodiscard]] Machine fresh(Seconds patience = Seconds(3.0));

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with workers that may outlive this object
};

}  // namespace headroom::gpu

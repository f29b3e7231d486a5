// Where facts about cards come from: a real driver (NvmlSource) or a specification
// (SimulatedSource). Both keep the same contract, which one test suite checks for each.
//
// Thread rule: calls about *different* cards may run at the same time in different threads, because
// a call may hang for ever in the driver and the others have to go on (see sampler.h). Calls never
// throw for what a card does; what is unknown afterwards is empty and `trouble` says why.
#pragma once

#include "headroom/gpu/card.h"

namespace headroom::gpu {

class CardSource {
 public:
  virtual ~CardSource() = default;

  // The driver and the cards with their fixed facts. Called once, before anything else. A machine
  // without driver or cards is an answer (`why_no_driver`), not an exception; a specification that
  // cannot be met (a shared box that exists with other cards) is one.
  virtual Machine open() = 0;

  // Memory, utilisation, temperature, power: cheap in the driver. `card` is one of open()'s.
  virtual void read_gauges(Card& card) = 0;

  // Who uses the card. Costs milliseconds inside the driver, so it is asked less often.
  virtual void read_processes(Card& card) = 0;

  // Adds to each process how busy it kept the card lately. Only for decisions about processes.
  virtual void read_activity(Card& card) = 0;
};

}  // namespace headroom::gpu

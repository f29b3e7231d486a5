// The source of facts about cards: a real driver (NvmlSource) or a specification (SimulatedSource).
// Both follow the same contract, and one test suite checks it for each.
//
// Thread rule: calls about *different* cards may run at the same time in different threads, because
// a call may hang in the driver for ever while the others continue (see sampler.h). Calls never
// throw because of a card: unknown facts are empty and `trouble` says why.
#pragma once

#include "headroom/gpu/machine.h"

namespace headroom::gpu {

class CardSource {
 public:
  virtual ~CardSource() = default;

  // Opens the driver and lists the cards with their fixed facts. Called once, before all other
  // calls. A machine without driver or cards is a result (`why_no_driver`), not an exception; a
  // specification that cannot be met (a shared box that exists with other cards) throws.
  virtual Machine open() = 0;

  // Memory, utilisation, temperature, power: cheap in the driver. `card` comes from open().
  virtual void read_gauges(Card& card) = 0;

  // The processes on the card. Costs milliseconds inside the driver, so it is called less often.
  virtual void read_processes(Card& card) = 0;

  // Adds to each process how busy it kept the card in the last seconds. Only for decisions about
  // processes.
  virtual void read_activity(Card& card) = 0;
};

}  // namespace headroom::gpu

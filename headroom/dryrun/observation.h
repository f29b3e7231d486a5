// Watches a card while a whole program runs: the report of a dry run, for a program that is not a
// function. The program's frame (in Python: rehearsal/watch.py) says where a step ends.
//
//   Observation watched(box.card(0), line);   // line() -> "train.py:84"
//   ...                                       // the program makes its model: the phase init
//   watched.know({.parameters = ...});        // before its first use
//   watched.begin_step(1);
//   ...                                       // forward, backward
//   watched.begin_optimizer();
//   ...                                       // the optimizer's step
//   watched.end_optimizer();
//   watched.end_step();
//   trace::Report report = watched.end({});
//
// Phases: as in dry_run(), and evaluation: work without a graph while evaluate(true) holds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "headroom/dryrun/subject.h"
#include "headroom/sim/card.h"
#include "headroom/trace/report.h"

namespace headroom::dryrun {

class Observation {
 public:
  // `line` gives the line of the program that runs in the calling thread, or an empty text; it is
  // called without any lock, and its texts live until the end.
  Observation(sim::Card& card, std::function<std::string_view()> line);
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;
  ~Observation();

  // The tensors of a model that appeared, or that was moved. Names as in Subject.
  void know(const Subject& subject);
  // Gradients that LibTorch's parameters do not lead to, by their parameter's name: those of
  // sharded ones, whose shards are the parameters that are known here.
  void know_gradients(const std::vector<Named>& gradients);
  // An optimizer's states, by their parameter's name.
  void know_states(const std::vector<Named>& states);
  void begin_step(std::uint32_t step);
  // Around a step of an optimizer. A closure that it calls, which runs forward and backward, is
  // between an end and another begin.
  void begin_optimizer();
  void end_optimizer();
  void evaluate(bool evaluates);
  void end_step();

  // Stops watching. Call it once.
  [[nodiscard]] trace::Report end(const Options& options);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace headroom::dryrun

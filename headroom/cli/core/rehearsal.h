// Runs a training script on simulated cards that it takes for CUDA's, and reads what its processes
// found (python/headroom/rehearsal).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/gpu/simulated.h"
#include "headroom/job/job.h"
#include "headroom/trace/report.h"

namespace headroom::cli {

struct RehearsalOrders {
  std::vector<std::string> command;
  std::vector<std::string> environment = {};  // "NAME=value"
  std::vector<gpu::SimulatedCard> cards;
  // Of a run without a limit: the cards that it should fit into, for its trace.
  std::vector<gpu::SimulatedCard> limits = {};
  std::string mode = "shape-only", rules = "cuda";
  int steps = 3;
  double assume_true = 0.5;
  std::optional<int> ranks = {};
  bool all_ranks = false;
  bool keep_writes = false;
  // Files for the events of the first card that was used; `html`: a page of them.
  std::string trace = {}, snapshot = {}, html = {};
  std::string change = {};  // one of kTriedChanges (rehearsal_advice.h); empty: none
  bool output_to_error = false;
  bool hides_output = false;  // the script's; Rehearsal::hidden_output has its end
};

// One card of one process.
struct RehearsedCard {
  int rank = 0, index = 0;
  double began = 0, ended = 0;  // of the process, in seconds since the machine started
  trace::Report report;
};

struct NeedByShare {
  double assume_true;
  Bytes needs;  // of the process
};

struct Rehearsal {
  job::JobEnd end;
  std::vector<RehearsedCard> cards;  // of all processes that used cards; empty: none did
  long long parameters = 0, trainable_parameters = 0;
  bool was_ended = false;        // after the last step, as it waited for a process that is done
  bool change_was_made = false;  // RehearsalOrders::change, in one of its processes
  int steps = 0;                 // that ended
  int passes = 0;                // backward passes before the first optimizer, or without one
  bool was_stopped_after_passes = false;
  int ooms_met = 0;                // as the script saw them
  bool ran_out_of_memory = false;  // and the script ended by it
  // Files that were there and would have changed, and checkpoints; the script's other new files.
  std::vector<std::string> not_written, written;
  std::vector<std::string> stood_in;
  std::vector<std::string> notes;              // sentences
  std::vector<trace::Assumption> assumptions;  // of all cards
  std::vector<NeedByShare> by_share;           // where more than one share was rehearsed
  std::string hidden_output;                   // the end of it

  // True if the script ended by itself, or after the last step.
  [[nodiscard]] bool is_whole() const { return end.started && (end.exit_code == 0 || was_ended); }
  // What the processes that were on a card at one time need, at most.
  [[nodiscard]] Bytes needs(int index) const;
};

// The same on cards without a limit, to know the need of what does not fit.
[[nodiscard]] RehearsalOrders without_limit(RehearsalOrders orders);

// Throws UnavailableError if this headroom has no Python package, and WriteError.
[[nodiscard]] Rehearsal rehearse(const RehearsalOrders& orders);

}  // namespace headroom::cli

// Runs a training script, unchanged, on simulated cards that look like CUDA devices to it, and
// reads what its processes found.
//
//   const Rehearsal rehearsal = rehearse({.command = {"python", "train.py"}, .cards = cards});
//   if (rehearsal.is_whole()) say(rehearsal.needs(0));   // of the first card
//
// docs/formats/rehearsal.md describes the orders that go to the script's processes and the reports
// that come back; python/headroom/rehearsal is the other side.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/gpu/simulated.h"
#include "headroom/job/job.h"
#include "headroom/trace/report.h"

namespace headroom::rehearse {

struct Orders {
  std::vector<std::string> command;
  std::vector<std::string> environment = {};  // "NAME=value"
  std::vector<gpu::SimulatedCard> cards;
  // The cards that a run without a limit should fit into, for its trace.
  std::vector<gpu::SimulatedCard> limits = {};
  std::string mode = "shape-only", rules = "cuda";
  int steps = 3;
  double assume_true = 0.5;
  std::optional<int> ranks = {};
  bool all_ranks = false;
  bool keep_writes = false;
  bool spill = false;         // what is needed later waits on the host when memory runs out
  bool keeps_events = false;  // of the first card that is used: Rehearsal::events
  std::string change = {};    // one of kTriedChanges (advice.h), which is to be tried
  bool output_to_error = false;
  bool hides_output = false;  // the script's; Rehearsal::hidden_output has its end
  std::function<void(const std::string&)> say =
      {};  // gets a sentence on each thing that takes long
};

// A folder that only this user can read; removed with this object.
class Folder {
 public:
  Folder();  // throws WriteError
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
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
  std::vector<RehearsedCard> cards;  // of all processes that used cards; an empty list if none did
  long long parameters = 0, trainable_parameters = 0;
  bool was_ended = false;        // after the last step, as it waited for a process that is done
  bool change_was_made = false;  // Orders::change, in one of its processes
  int steps = 0;                 // that ended
  int passes = 0;                // backward passes before the first optimizer, or without one
  bool was_stopped_after_passes = false;
  // Under Orders::spill, of the process that has most.
  struct Spilled {
    Bytes waiting, moved_in_step;
    std::int64_t refused_in_step = 0;
  };
  Spilled spilled = {};
  int ooms_met = 0;                // as the script saw them
  bool ran_out_of_memory = false;  // and the script ended by it
  // Files that were there and would have changed, and checkpoints; the script's other new files.
  std::vector<std::string> not_written, written;
  // Models whose weights are missing: the shapes of their configurations stand in.
  std::vector<std::string> stood_in;
  std::vector<std::string> notes;                    // sentences
  std::vector<trace::Assumption> assumptions;        // of all cards
  std::vector<NeedByShare> by_share;                 // where more than one share was rehearsed
  std::string hidden_output;                         // the end of it
  std::shared_ptr<const Folder> folder;              // of its files
  std::optional<std::filesystem::path> events = {};  // a trace there, as long as `folder` lives

  // True if the script ended by itself, or after the last step.
  [[nodiscard]] bool is_whole() const { return end.started && (end.exit_code == 0 || was_ended); }
  // The most memory that the processes on a card at one time need.
  [[nodiscard]] Bytes needs(int index) const;
};

// ---- On these cards: a RehearsedCard ran on the card of its index ----

// The largest process on the card with the least memory left. There must be one.
[[nodiscard]] const RehearsedCard& tightest(const Rehearsal& rehearsal,
                                            const std::vector<gpu::SimulatedCard>& cards);

// False if memory ran out, or if processes need more of a card together.
[[nodiscard]] bool fits(const Rehearsal& rehearsal, const std::vector<gpu::SimulatedCard>& cards);

// The command with its output in a file.
[[nodiscard]] std::vector<std::string> with_output_in(const std::filesystem::path& file,
                                                      const std::vector<std::string>& command);

// The same on cards without a limit, to find the need of a script that does not fit.
[[nodiscard]] Orders without_limit(Orders orders);

// Throws UnavailableError if this Headroom has no Python package, and WriteError.
[[nodiscard]] Rehearsal rehearse(const Orders& orders);

// If the script runs out of memory, it is rehearsed again without a limit, to find its need.
[[nodiscard]] Rehearsal rehearse_with_need(const Orders& orders);

// The same once for each share of a mask that may be true; gives the rehearsal that needs most,
// with the needs of all.
[[nodiscard]] Rehearsal rehearse_shares(Orders orders, const std::vector<double>& shares);

}  // namespace headroom::rehearse

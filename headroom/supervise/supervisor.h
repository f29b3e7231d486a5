// Runs a command to a good end on a shared machine: waits for its place and reserves it, starts,
// watches, tells why it ended, and after an out-of-memory - and after nothing else - tries again
// with less of what the user allowed to change.
//
// The ladder after an out-of-memory: a smaller batch with the accumulation that keeps the effective
// batch; then a card with more room; then a wait for more. A bug is never tried again.
//
// Thread rule: everything happens in the calling thread, which also takes the signals over (see
// job.h). Make no other thread before.
//
//   Report report = supervise({.command = {"python", "train.py", "--batch-size", "64"},
//                              .maps = {"--batch-size=batch", "--accum=accumulation"}}, listener);
//   exit(report.exit_code);
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "headroom/gpu/devices.h"
#include "headroom/gpu/wait.h"
#include "headroom/oom/forensics.h"
#include "headroom/supervise/history.h"

namespace headroom::supervise {

struct Orders {
  std::vector<std::string> command;

  // Its place.
  gpu::Devices devices;
  std::optional<Bytes> need;  // on each card; empty: what it used before, else all that is usable
  std::optional<int> count;   // of cards; empty: 1, inside another `run` all that it has
  gpu::Order order = gpu::Order::most_free;
  bool by_uuid = false;  // name the cards to the command by UUID
  Seconds wait_timeout{3600};
  Seconds wait_interval{1};
  Seconds wait_for_more{0};  // for more memory than a place had that was too small

  // What may be changed.
  std::vector<std::string> maps;
  long long min_batch = 1;
  bool keep_effective_batch = true;
  std::string resume_arguments;  // "--resume {}"
  std::string checkpoints;       // "out/ckpt-*.pt"
  int max_retries = 10;

  // What is watched and kept.
  std::optional<Seconds> stall;  // report when neither output nor a card moved for so long
  bool end_stalled = false;
  std::filesystem::path history;  // empty: in the state folder
  bool remember = true;           // use and keep what worked
  bool output_to_error = false;   // the command's standard output goes to our standard error
};

// Somebody who looks on. Called from the calling thread.
struct Listener {
  std::function<void(const std::string&)> say;            // a sentence
  std::function<void(const gpu::WaitProgress&)> waiting;  // about once a second
  std::function<void()> starting;                         // the command gets the terminal
};

enum class Outcome {
  ended,          // the command's own end, good or bad
  out_of_memory,  // to the end
  busy,           // no place in time
  no_cards,       // none where one is needed
  cancelled,      // by a signal, before the command was started
};

struct Report {
  Outcome outcome = Outcome::ended;
  int exit_code = 0;                        // the command's own; 128 + signal if cancelled
  std::string sentence;                     // why it ended so, unless all is well
  std::optional<oom::Forensics> forensics;  // of the last out-of-memory, if there was one
  std::vector<TryRecord> tries;
  Seconds waited{0};
};

// Throws UsageError for orders that cannot be meant, InputError for mapped files.
[[nodiscard]] Report supervise(const Orders& orders, const Listener& listener);

}  // namespace headroom::supervise

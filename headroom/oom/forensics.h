// The report of an out-of-memory in a program that Headroom only watched: the request and the free
// memory, the holders of the rest, the history, and what to change.
//
// Takes plain values and returns a text or a JSON document. The caller fills in the values and
// leaves out those that it does not know.
//
//   Forensics forensics{.judgement = judgement, .cards = cards, .samples = samples};
//   forensics.changes = {{"--batch-size", 64, 16}, {"--accum", 1, 4}};
//   say(describe(forensics));
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/json.h"
#include "headroom/base/time.h"
#include "headroom/gpu/machine.h"
#include "headroom/oom/judgement.h"

namespace headroom::oom {

struct HolderThen {
  std::optional<pid_t> pid;
  std::string user, command;
  std::optional<Bytes> used;
  bool of_the_job = false;
};

// A card at the last sample before the end.
struct CardSample {
  int index = 0;
  std::string uuid, name;
  gpu::CardMemory memory;
  std::vector<HolderThen> holders;
};

// One moment of the recent minutes, on the fullest card (or on the host).
struct MemoryThen {
  Seconds before_end{0};
  Bytes used;                     // by all processes
  std::optional<Bytes> job_used;  // by the job alone
};

struct TryThen {
  std::optional<long long> batch, accumulation;  // where these arguments are mapped
  bool out_of_memory = false;
  std::optional<Bytes> peak;  // the highest use of the job that was observed
};

// A mapped argument, under the user's name for it.
struct Change {
  std::string name;
  long long from = 0, to = 0;
};

struct Forensics {
  Judgement judgement;
  std::vector<CardSample> cards;
  std::vector<MemoryThen> samples;  // the oldest first
  std::optional<Bytes> limit;       // the most that the job may use
  std::vector<TryThen> tries;       // the last one is this try
  std::vector<Change> changes;      // of the next try, or advised
  std::string why_no_change;        // one sentence, if nothing can be changed
};

// A card as in a sample, with the job's processes marked.
[[nodiscard]] CardSample card_sample(const gpu::Card& card, const std::vector<pid_t>& job);

// Usually 10 to 22 lines of at most 80 columns, each with a newline.
[[nodiscard]] std::string describe(const Forensics& forensics);

// The same as JSON: keys end in _bytes and _s, unknown values are null.
[[nodiscard]] Json document(const Forensics& forensics);
[[nodiscard]] Json document(const Judgement& judgement);

}  // namespace headroom::oom

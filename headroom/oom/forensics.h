// What can be said of an out-of-memory afterwards, of a program that we only watched: what was
// asked and what was free, who held the rest, how it came to that, and what to change.
//
// Plain values in, a text or a document out; whoever watched fills them, and leaves out what he
// does not know.
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
#include "headroom/gpu/card.h"
#include "headroom/oom/judgement.h"

namespace headroom::oom {

struct HolderThen {
  std::optional<pid_t> pid;
  std::string user, command;
  std::optional<Bytes> used;
  bool of_the_job = false;
};

// A card at the last sample before the end.
struct CardThen {
  int index = 0;
  std::string uuid, name;
  gpu::CardMemory memory;
  std::vector<HolderThen> holders;
};

// A moment of the recent minutes, of the fullest card (or of the host).
struct MemoryThen {
  Seconds before_end{0};
  Bytes used;                     // by everybody
  std::optional<Bytes> job_used;  // by the job alone
};

struct TryThen {
  std::optional<long long> batch, accumulation;  // where they are mapped
  bool out_of_memory = false;
  std::optional<Bytes> peak;  // most the job was seen to use
};

// A mapped argument, by the name that the user gave.
struct Change {
  std::string name;
  long long from = 0, to = 0;
};

struct Forensics {
  Judgement judgement;
  std::vector<CardThen> cards;
  std::vector<MemoryThen> samples;  // the oldest first
  std::optional<Bytes> limit;       // what the job could have had
  std::vector<TryThen> tries;       // this one is the last
  std::vector<Change> changes;      // what the next try changes, or what to change
  std::string why_no_change;        // one sentence, where nothing can be changed
};

// A card as a sample has it, with the job's processes marked.
[[nodiscard]] CardThen card_then(const gpu::Card& card, const std::vector<pid_t>& job);

// The batch that ran with the most samples at once; nothing if none did.
[[nodiscard]] std::optional<TryThen> largest_fit(const std::vector<TryThen>& tries);

// Ten to twenty-two lines of at most 80 columns, each ended.
[[nodiscard]] std::string describe(const Forensics& forensics);

// The same for programs: keys end in _bytes and _s, unknown is null.
[[nodiscard]] Json document(const Forensics& forensics);
[[nodiscard]] Json document(const Judgement& judgement);

}  // namespace headroom::oom

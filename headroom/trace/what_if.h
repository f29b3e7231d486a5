// Plays the same trace on several cards at once, with other settings or capacities. One pass over
// the file feeds all of them.
//
//   const WhatIf result = what_if(*trace, {{}, {.settings = "expandable_segments:True"}});
//   say(verdict(result.cards[0], result.cards[best(result.cards)]));
//
// The cards play in parallel threads, up to the number of processors; results do not depend on
// that. docs/guides/what-if.md gives the cost.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "headroom/trace/replay.h"

namespace headroom::trace {

struct WhatIf {
  std::vector<CardReplay> cards;  // in the order of the setups
  Noticed noticed;
};

// Ignores `options.setup` and `options.follower`. Throws as replay().
[[nodiscard]] WhatIf what_if(Reader& trace, const std::vector<CardSetup>& setups,
                             const ReplayOptions& options = {});

// The usual alternatives, each added to these settings: first none, then expandable segments,
// max_split_size_mb 128 and 512 (incompatible with expandable segments), roundup_power2_divisions
// 4, and, only with a memory fraction below 1 (otherwise it has no effect), garbage collection at
// 0.8. Leaves out an option that the settings already name.
[[nodiscard]] std::vector<CardSetup> usual_setups(const CardSetup& setup, const About& about);

// The card with the fewest refusals, then the least reserved memory, then the fewest retries, then
// the fewest driver calls; among equals the first.
[[nodiscard]] std::size_t best(const std::vector<CardReplay>& cards);

// One sentence: what `other` saves or avoids compared with `base`.
[[nodiscard]] std::string verdict(const CardReplay& base, const CardReplay& other);
// "expandable_segments:True", "PyTorch's defaults".
[[nodiscard]] std::string settings_text(const CardReplay& card);

struct SmallestCapacity {
  // The smallest multiple of `step` without a refusal that bisection finds: with `step` less, a
  // request is refused. std::nullopt if the trace is refused on any card.
  std::optional<Bytes> capacity;
  Bytes step;
  // More memory is not always enough: the capacities tried above `capacity` that still refuse. (A
  // larger card keeps more unused blocks and may fragment differently.)
  std::vector<Bytes> refused_above;
  int tried = 0;
};

// A trace decoded into memory (32 bytes per operation), to be played many times.
class LoadedTrace {
 public:
  // Both must outlive this object.
  LoadedTrace(Reader& trace, Operations& operations, const ReplayOptions& options = {});

  // Stops at the first refusal unless `to_the_end`.
  [[nodiscard]] CardReplay play(const CardSetup& setup, bool to_the_end = true) const;
  // Ignores the setup's own capacity. Calls `progress` with the number of capacities tried.
  [[nodiscard]] SmallestCapacity smallest_capacity(
      const CardSetup& setup, const std::function<void(int)>& progress = {}) const;

 private:
  [[nodiscard]] bool is_cancelled() const { return options_.cancel.stop_requested(); }

  const About& about_;
  const Operations& operations_;
  ReplayOptions options_;
  std::vector<Batch> batches_;
};

}  // namespace headroom::trace

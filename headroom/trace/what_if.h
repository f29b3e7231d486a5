// The same trace on several cards at once: other settings, other capacities. One pass over the file
// feeds all of them.
//
//   const WhatIf result = what_if(*trace, {{}, {.settings = "expandable_segments:True"}});
//   say(verdict(result.cards[0], result.cards[best(result.cards)]));
//
// Each card plays in a thread of its own, as far as the machine has processors; results do not
// depend on that. What it costs is in docs/guides/what-if.md.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "headroom/trace/replay.h"

namespace headroom::trace {

struct WhatIf {
  std::vector<CardReplay> cards;  // as the setups
  Noticed noticed;
};

// `options.setup` and `options.follower` are not used. Throws as replay().
[[nodiscard]] WhatIf what_if(Reader& trace, const std::vector<CardSetup>& setups,
                             const ReplayOptions& options = {});

// What people usually try, each added to these settings: nothing first, then expandable segments,
// max_split_size_mb 128 and 512 (which do not go together with them), roundup_power2_divisions 4,
// and with a memory fraction below 1 (else it does nothing) garbage collection at 0.8. An option
// that the settings name already is left out.
[[nodiscard]] std::vector<CardSetup> usual_setups(const CardSetup& setup, const About& about);

// The one that refuses least, then reserves least, then retries least, then asks the driver least;
// among equals the first.
[[nodiscard]] std::size_t best(const std::vector<CardReplay>& cards);

// One sentence: what `other` would have saved or avoided compared with `base`, if anything.
[[nodiscard]] std::string verdict(const CardReplay& base, const CardReplay& other);
// "expandable_segments:True", "PyTorch's defaults".
[[nodiscard]] std::string settings_text(const CardReplay& card);

struct SmallestCapacity {
  // The least multiple of `step` on which nothing is refused, as far as halving can find it: with
  // `step` less, something is. Nothing: refused on any card.
  std::optional<Bytes> capacity;
  Bytes step;
  // More memory is not always enough: of capacities tried above the found one, those that refuse.
  // (A larger card keeps more unused blocks, and may end with another fragmentation.)
  std::vector<Bytes> refused_above;
  int tried = 0;
};

// A trace decoded into memory, 32 bytes an operation, to be played many times.
class LoadedTrace {
 public:
  // Both must live as long as this.
  LoadedTrace(Reader& trace, Operations& operations, const ReplayOptions& options = {});

  // Without `to_the_end`, up to the first refusal.
  [[nodiscard]] CardReplay play(const CardSetup& setup, bool to_the_end = true) const;
  // The setup's own capacity is not looked at. `progress` hears how many were tried.
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

// The answer to "how large may it be?": the largest batch, or the longest sequence, that fits a
// card, with all sizes that were tried. By dry runs of a model or of a user's function, or by
// rehearsals of a script.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/answer/answer.h"

namespace headroom::answer {

enum class Over { batch, seq };

struct TriedSize {
  std::int64_t size = 0;
  bool fits = false;
  Bytes process;                       // what the process needs, at its peak
  std::optional<Bytes> reserved = {};  // std::nullopt for a rehearsal, which may have several
};

struct Fit {
  Method method = Method::dry_run;
  std::string model;
  std::optional<model::Settings> settings = {};  // as Answer::settings
  gpu::SimulatedCard card;                       // of several, the one with the least memory
  Over over = Over::batch;
  std::optional<std::int64_t> size = {};  // std::nullopt: not even the smallest fits
  std::optional<std::int64_t> recommended = {};
  bool capped = false;                // the largest size that may be tried fits
  bool is_proven = false;             // the next larger size was tried and does not fit
  std::vector<TriedSize> tried = {};  // in their order
  std::vector<std::string> notes = {};
  std::vector<plan::Saving> advice = {};

  [[nodiscard]] bool fits() const { return size.has_value(); }
};

// `max_batch`, `recommended_batch` and the probes' `batch` hold the searched size; a sequence
// search adds the same numbers as `max_seq`, `recommended_seq` and `seq`.
[[nodiscard]] Json to_json(const Fit& fit);

}  // namespace headroom::answer

// The sentences of an answer, for a terminal, a page and a note.
#pragma once

#include <string>
#include <vector>

#include "headroom/answer/answer.h"

namespace headroom::answer {

// "fits" and ", 3.21 GiB to spare"; "does not fit" and ": 1.20 GiB too much".
struct Verdict {
  std::string word, rest;
  bool is_good = false;
};
[[nodiscard]] Verdict verdict_of(const OnCard& on);
// "NVIDIA GeForce RTX 4090, 23.99 GiB (23.64 GiB usable)"
[[nodiscard]] std::string card_words(const gpu::SimulatedCard& card);

// "3.2 M parameters, 65.8 k of them trained (2.1 %)"
[[nodiscard]] std::string parameters_words(const Answer& answer);
// "causal-lm, train, bfloat16, batch 2 x 2048 tokens, fused adamw": settings that differ from the
// defaults, and those that must always be shown.
[[nodiscard]] std::string settings_words(const model::Settings& settings);

// "a, b, c, d and 3 more"
[[nodiscard]] std::string listed(const std::vector<std::string>& all);
// "assumed, as values are unknown: the places are spread evenly (96 times, most often topk in
// model.py:31)"
[[nodiscard]] std::string assumptions_words(const std::vector<trace::Assumption>& all);

// The sentences under the title of a page: whether it fits, what was refused and what would have
// fitted, then the notes.
[[nodiscard]] std::vector<std::string> sentences(const Answer& answer);

}  // namespace headroom::answer

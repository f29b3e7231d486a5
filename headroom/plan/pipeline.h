// A model that is cut into stages, one a card: the order in which each stage runs the parts of a
// batch, so that the stages work at the same time.
//
//   for (const plan::Pass& pass : plan::passes(Pipeline::one_by_one, stage, stages, parts))
//     pass.is_forward ? forward(pass.part) : backward(pass.part);
//
// Both orders run the parts forward, and backward, from the first to the last, so they add up
// gradients in the same order and end in the same bits.
//
// - one_by_one, or 1F1B: forward passes and backward passes take turns, after a few forward passes
//   that fill the stages after this one. At most `stages - stage` parts wait for their backward
//   pass, however many there are.
// - gpipe: all forward passes, then all backward passes. All parts wait.
//
// Sources: Narayanan et al., "PipeDream", SOSP 2019; Huang et al., "GPipe", NeurIPS 2019.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headroom::plan {

enum class Pipeline { one_by_one, gpipe };

// "1f1b" and "gpipe". Throws UsageError for another name.
[[nodiscard]] std::string to_string(Pipeline pipeline);
[[nodiscard]] Pipeline pipeline_named(std::string_view name);

struct Pass {
  bool is_forward;
  int part;
};

[[nodiscard]] std::vector<Pass> passes(Pipeline pipeline, int stage, int stages, int parts);

// The most parts that wait for their backward pass on a stage.
[[nodiscard]] int most_in_flight(Pipeline pipeline, int stage, int stages, int parts);

}  // namespace headroom::plan

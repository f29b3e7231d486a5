// Two traces compared at their peaks: which memory the second has more or less of, and why.
//
//   const Difference difference = difference_of(timeline_of(*before), timeline_of(*after));
//   say("the peak grew by", to_string(difference.peak()));
//   for (const DifferentPart& part : difference.parts) say(part.module, part.b - part.a);
//
// The memory at a peak is divided by the phase in which a tensor was made, its module and its
// category. The differences of all parts add up to the difference of the peaks exactly.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/page/timeline.h"

namespace headroom::page {

// "parameters", ..., "rounding": the names of a report's parts (report.h), and "unknown".
[[nodiscard]] std::string plural(trace::Category category);

struct ComparedPeak {
  std::string name;  // of the trace
  Bytes allocated;
  Bytes reserved;  // the highest of the trace, or of the compared step
  trace::Phase phase = trace::Phase::unknown;
  std::uint32_t step = 0;
};

// "backward of step 2"; "" if the trace does not say.
[[nodiscard]] std::string moment_of(const ComparedPeak& peak);

struct DifferentPart {
  trace::Phase phase = trace::Phase::unknown;  // in which the tensors were made
  std::string module;                          // where it is unknown, the line of the program
  std::string category;                        // "activations"
  Bytes a, b;
};

struct ComparedStep {
  std::uint32_t step = 0;
  // The peak of allocated memory; std::nullopt if the trace lacks the step.
  std::optional<Bytes> a, b;
};

struct Difference {
  ComparedPeak a, b;
  std::vector<DifferentPart> parts;  // those that differ, the largest difference first
  std::vector<ComparedStep> steps;
  std::vector<std::string> reasons;  // sentences

  [[nodiscard]] Bytes peak() const { return b.allocated - a.allocated; }
};

struct DiffOptions {
  std::string name_a = "A", name_b = "B";
  // Compares the peaks of this step instead of the highest ones. Throws UsageError if a trace lacks
  // the step.
  std::optional<std::uint32_t> step = {};
};

[[nodiscard]] Difference difference_of(const Timeline& a, const Timeline& b,
                                       const DiffOptions& options = {});

// Parts of modules that differ only in numbers as one: "h.*.mlp" for "h.0.mlp" to "h.11.mlp".
struct FoldedPart {
  DifferentPart part;
  std::size_t modules = 1;
};
[[nodiscard]] std::vector<FoldedPart> folded(const std::vector<DifferentPart>& parts);
// "h.*.mlp (12 modules)"
[[nodiscard]] std::string shown_module(const FoldedPart& folded);

[[nodiscard]] Json to_json(const Difference& difference);

}  // namespace headroom::page

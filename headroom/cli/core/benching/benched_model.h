// One model of a benchmark: planned, trained in a process of its own, and with a lighter plan if
// memory ran out.
#pragma once

#include "headroom/base/json.h"
#include "headroom/cli/core/benching/bench_question.h"

namespace headroom::cli {

// Its entry in results.json (docs/formats/bench.md). Throws UsageError and InputError for a model
// that cannot be planned, and Stopped.
[[nodiscard]] Json benched_model(const BenchQuestion& question, const std::string& model);

// Ctrl-C, or another request to end.
struct Stopped final : std::exception {
  explicit Stopped(int signal_number) : signal(signal_number) {}
  int signal;
};

}  // namespace headroom::cli

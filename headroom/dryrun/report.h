// What a dry run found: how much memory a training step needs, when, and what for.
//
//   const Report report = dry_run(...);
//   say(to_string(report.peak.allocated), "in", to_string(report.peak.phase));
//   for (const Held& tensor : report.biggest) ...
//
// Every number is of one card. What is not in here: the memory of other processes, and what a card
// without a profile cannot know (`process` is then `reserved`).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headroom/allocator/caching_allocator.h"
#include "headroom/base/bytes.h"
#include "headroom/base/json.h"
#include "headroom/trace/event.h"

namespace headroom::dryrun {

struct Peak {
  Bytes allocated;  // blocks handed out, rounding included: torch.cuda.max_memory_allocated()
  Bytes active;     // every tensor rounded to 512 bytes, workspaces left out
  Bytes requested;  // as asked for
  Bytes reserved;   // taken from the card: torch.cuda.max_memory_reserved()
  Bytes process;    // and the CUDA context: what nvidia-smi would show
  trace::Phase phase = trace::Phase::unknown;  // in which `allocated` was highest
  std::uint32_t step = 0;                      // counted from 1; 0: before the first
};

// What the memory at the peak is. The parts add up to Peak::allocated exactly.
struct Parts {
  Bytes parameters, buffers, inputs, gradients, optimizer, activations, temporaries, workspace;
  Bytes rounding;  // allocated minus requested

  [[nodiscard]] Bytes total() const;
  bool operator==(const Parts&) const = default;
};

// The most that a module held at one time, its children included; "" is everything.
struct ModulePeak {
  std::string name;
  Bytes peak;
};

struct StepPeak {
  std::uint32_t step = 0;
  Bytes allocated;  // the highest in this step
  Bytes after;      // when it had ended
};

// A tensor that was alive at the peak.
struct Held {
  Bytes bytes;  // as asked for
  trace::Category category = trace::Category::unknown;
  trace::Phase phase = trace::Phase::unknown;  // in which it was made
  std::uint32_t step = 0;
  std::string module;
  std::string operation;
};

// All that happened on the card, each event with module, operator, category, phase and step.
struct Trace {
  std::vector<trace::Event> events;
  trace::Names names;
};

struct Report {
  Peak peak;
  Parts at_peak;
  std::vector<ModulePeak> by_module;  // the largest first
  std::vector<StepPeak> per_step;
  std::vector<Held> biggest;  // the largest first
  // The request that did not fit. `peak` is then as far as the run came; dry_run() with the spec of
  // a card says there what would be needed.
  std::optional<allocator::OutOfMemory> out_of_memory;
  // Values that the step read from the card (`.item()`, copies) and that are not known: each was
  // answered as if every unknown number were zero.
  std::uint64_t values_read_as_zero = 0;
  // As many of them were read alone (`.item()`, `if`): a real run may take another branch.
  std::uint64_t decided_by_unknown = 0;
  double took_s = 0;                   // the steps alone, without making the model
  std::shared_ptr<const Trace> trace;  // null: not kept, or of a run in a child process

  [[nodiscard]] bool fits() const { return !out_of_memory; }
};

// All of it but the trace.
[[nodiscard]] Json to_json(const Report& report);
// The other way round, for a report that came from another process. Throws InputError.
[[nodiscard]] Report report_from_json(const Json& json);

// Writes the trace as a Headroom trace (docs/formats/trace.md). Throws WriteError.
void write_trace(const Report& report, const std::string& path);

}  // namespace headroom::dryrun

// The result of a dry run: how much memory a training step needs, when, and for what. A forecast
// (room forecast) fills the same figures, but neither `biggest` nor `trace`.
//
//   const trace::Report report = dryrun::dry_run(...);
//   say(to_string(report.peak.allocated), "in", to_string(report.peak.phase));
//   for (const trace::LiveTensor& tensor : report.biggest) ...
//
// Every number is for one card. The numbers exclude the memory of other processes, and the CUDA
// context of a card without a profile (`process` then equals `reserved`).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/allocator/caching_allocator.h"
#include "headroom/base/bytes.h"
#include "headroom/base/json.h"
#include "headroom/trace/event.h"
#include "headroom/trace/reader.h"

namespace headroom::trace {

// The highest value of each figure; they may occur at different moments.
struct Peak {
  Bytes allocated;               // blocks with rounding: torch.cuda.max_memory_allocated()
  Bytes active;                  // live tensors, each rounded to 512 bytes, without workspaces
  Bytes requested;               // the sizes that the program asked for, without rounding
  Bytes reserved;                // segments: torch.cuda.max_memory_reserved()
  Bytes process;                 // reserved plus the CUDA context: as in nvidia-smi
  Phase phase = Phase::unknown;  // of the highest `allocated`
  std::uint32_t step = 0;        // counted from 1; 0: before the first
  bool operator==(const Peak&) const = default;
};

// The memory at the peak, by category. The parts add up to Peak::allocated exactly.
struct Parts {
  Bytes parameters, buffers, inputs, gradients, optimizer, activations, temporaries, workspace;
  Bytes rounding;  // allocated minus requested

  [[nodiscard]] Bytes total() const;
  bool operator==(const Parts&) const = default;
};
// All parts with their names, for printing and for JSON.
struct NamedPart {
  std::string_view name;
  Bytes Parts::*part;
};
inline constexpr std::array<NamedPart, 9> kParts{{{"parameters", &Parts::parameters},
                                                  {"buffers", &Parts::buffers},
                                                  {"inputs", &Parts::inputs},
                                                  {"gradients", &Parts::gradients},
                                                  {"optimizer", &Parts::optimizer},
                                                  {"activations", &Parts::activations},
                                                  {"temporaries", &Parts::temporaries},
                                                  {"workspace", &Parts::workspace},
                                                  {"rounding", &Parts::rounding}}};

// The peak of one module, its children included; "" is the whole step.
struct ModulePeak {
  std::string name;
  Bytes peak;
};

struct StepPeak {
  std::uint32_t step = 0;
  Bytes allocated;             // the peak in this step
  std::optional<Bytes> after;  // at the end of the step; a forecast does not know it
};

// A tensor that was alive at the peak.
struct LiveTensor {
  Bytes bytes;  // as requested
  Category category = Category::unknown;
  Phase phase = Phase::unknown;  // in which it was made
  std::uint32_t step = 0;
  std::string module;
  std::string operation;
  std::string line = {};  // of the program, such as "train.py:84"; "" if unknown
};

// A line of the program in a run that was observed (dryrun/observation.h).
struct LineBytes {
  std::string line;
  Bytes bytes;  // of the tensors at the peak that were made there
};
struct PhasePeak {
  Phase phase = Phase::unknown;
  Bytes allocated;  // the highest in this phase
};

// An assumption that was made where the shape of a result depended on unknown values.
struct Assumption {
  std::string what;
  std::string where;  // a line of the program; "" if unknown
  std::uint64_t count = 0;
};

// All events of the card, each with module, operator, category, phase and step.
struct Trace {
  std::vector<Event> events;
  Names names;
};

struct Report {
  Peak peak;
  Parts at_peak;
  std::vector<ModulePeak> by_module;  // largest first
  std::vector<StepPeak> per_step;
  std::vector<LiveTensor> biggest;       // largest first
  std::string line_at_peak = {};         // of the program; this and the next two: only if observed
  std::vector<LineBytes> by_line = {};   // largest first
  std::vector<PhasePeak> by_phase = {};  // phases that ran
  // The request that did not fit. From dry_run() on a sim::Card of yours `peak` then ends there.
  // From dry_run() with a card's spec the step ran again on an unlimited card: `peak` is what it
  // needs.
  std::optional<allocator::OutOfMemory> out_of_memory;
  // Values without data that the step read from the card (`.item()`, copies); each reads as zero.
  std::uint64_t values_read_as_zero = 0;
  // The number of these that were read one at a time (`.item()`, `if`): a real run may take another
  // branch.
  std::uint64_t decided_by_unknown = 0;
  std::vector<Assumption> assumptions = {};
  double took_s = 0;  // the steps, without making the model
  // Facts of the trace that are not in JSON: the allocator's settings, as PYTORCH_CUDA_ALLOC_CONF;
  // the card's name, and its memory for a program ("" means no limit).
  std::string allocator = {};
  std::string card = {};
  std::optional<Bytes> room = {};
  bool is_within_room = true;          // false: the events are those of a run without a limit
  std::shared_ptr<const Trace> trace;  // null if not kept, or if the run was in a child process

  [[nodiscard]] bool fits() const { return !out_of_memory; }
};

// A sentence about values that the step read without knowing them; "" if it read none.
[[nodiscard]] std::string warning_of(const Report& report);

[[nodiscard]] Json to_json(const Peak& peak);
// The figures that a forecast fills: the peak, its parts, the modules and the steps.
[[nodiscard]] Json figures_json(const Report& report);
// Everything except the trace.
[[nodiscard]] Json to_json(const Report& report);
// The reverse, for a report from another process. Throws InputError.
[[nodiscard]] Report report_from_json(const Json& json);

// Reads the events of the report, which must outlive the reader. Throws UsageError if they were not
// kept. `about` may give the card's capacity and facts; the rest is filled in.
[[nodiscard]] std::unique_ptr<Reader> read_trace(const Report& report, About about = {});
// Writes them as a Headroom trace (docs/formats/trace.md). Throws WriteError, too.
void write_trace(const Report& report, const std::string& path, const About& about = {});

}  // namespace headroom::trace

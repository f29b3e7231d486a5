// How much memory a run of a published model needs, without running it: operator by operator from
// the model's description, in less than a tenth of a millisecond.
//
//   const NamedModel model = model_named("llama-3.1-8b");
//   Settings settings;
//   settings.dtype = Dtype::bfloat16;
//   const Forecast forecast = forecast_of(model.config, settings);
//   forecast.at_peak.total();   // what torch.cuda.max_memory_allocated() would say
//   forecast.phase;             // when
//   forecast.assumed;           // "no --seq given, 512 assumed"
//
// It prices settings that nothing can run yet, too: quantised weights, ZeRO, offloading, 8-bit
// states. What it leaves out: blocks that the allocator does not split, temporaries of a few
// kilobytes. tests/estimate/closed_form_test.cpp says how far it is from the dry run.
//
// Threads: from any; nothing is shared.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/formula/effort.h"
#include "headroom/formula/model_config.h"
#include "headroom/formula/settings.h"
#include "headroom/gpu/profile.h"

namespace headroom::formula {

// What memory at the peak is; the parts add up to what is allocated.
struct MemoryParts {
  Bytes parameters, buffers, inputs, gradients, optimizer, activations, temporaries, workspace;
  Bytes rounding;  // handed out beyond what was asked for
  [[nodiscard]] Bytes total() const;
  bool operator==(const MemoryParts&) const = default;
};

enum class PeakPhase { forward, backward, optimizer };
[[nodiscard]] std::string_view to_string(PeakPhase phase);

// Embeddings, a layer, a head: its parameters with their gradients and states, and what it keeps
// for the backward pass.
struct ModuleMemory {
  std::string name;
  long long parameters = 0;
  Bytes bytes;
};

struct Forecast {
  long long parameters = 0, trainable_parameters = 0;
  Settings settings;                 // with what was decided: task, seq, target_seq, image
  std::vector<std::string> assumed;  // each thing that nobody said
  MemoryParts at_peak;
  PeakPhase phase = PeakPhase::forward;
  // By a rule of thumb, see reserved_for.
  Bytes reserved;
  Bytes process;                // and the CUDA context, where the card's is known
  Bytes resident;               // parameters, gradients and states: what is there all the time
  Bytes on_host, on_disk;       // what was offloaded
  Bytes offloaded_activations;  // of that
  std::vector<ModuleMemory> by_module;
  Effort effort;  // of forward and backward of one micro-batch
};

// Of a model or a batch whose bytes could not be counted in 64 bits, though each size alone could
// be.
class TooLargeError : public InputError {
 public:
  using InputError::InputError;
};

// `profile`: of the card's chip; nothing: attention as on an A100, no workspaces and no context.
// Throws InputError for a config that cannot be right, UsageError for settings that this model
// cannot take.
[[nodiscard]] Forecast forecast_of(const ModelConfig& config, const Settings& settings,
                                   const gpu::DeviceProfile* profile = nullptr);

// Parameters alone, as transformers counts them.
[[nodiscard]] long long count_parameters(const ModelConfig& config);

// What the caching allocator takes from the card for such a peak: 4 % more than what stands (blocks
// that are not split) and 10 % more than what comes and goes (gaps). Of the dry run's figure it is
// half the time within 5 %; small runs can reserve much more.
[[nodiscard]] Bytes reserved_for(const MemoryParts& at_peak);

}  // namespace headroom::formula

// Predicts the memory of a run of a published model without running it: operator by operator from
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
// It also prices settings that Headroom cannot run yet: quantised weights, ZeRO, offloading, 8-bit
// optimizer states. It leaves out blocks that the allocator does not split, and temporaries of a
// few kilobytes. tests/estimate/closed_form_test.cpp states its distance from the dry run.
//
// Thread-safe: calls share no state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/forecast/effort.h"
#include "headroom/gpu/profile.h"
#include "headroom/model/model_config.h"
#include "headroom/model/settings.h"

namespace headroom::forecast {

// Memory at the peak by purpose; the parts add up to the allocated bytes.
struct MemoryParts {
  Bytes parameters, buffers, inputs, gradients, optimizer, activations, temporaries, workspace;
  Bytes rounding;  // bytes that the allocator adds to the requested ones
  [[nodiscard]] Bytes total() const;
  bool operator==(const MemoryParts&) const = default;
};

enum class PeakPhase { forward, backward, optimizer };
[[nodiscard]] std::string_view to_string(PeakPhase phase);

// One module (embeddings, a layer, a head): its parameters with their gradients and optimizer
// states, and the activations that it keeps for the backward pass.
struct ModuleMemory {
  std::string name;
  long long parameters = 0;
  Bytes bytes;
};

struct Forecast {
  long long parameters = 0, trainable_parameters = 0;
  model::Settings settings;          // as given, with task, seq, target_seq and image decided
  std::vector<std::string> assumed;  // one sentence for each default that was taken
  MemoryParts at_peak;
  PeakPhase phase = PeakPhase::forward;
  // An estimate by reserved_for.
  Bytes reserved;
  Bytes process;                // reserved, and the CUDA context where the card's is known
  Bytes resident;               // parameters, gradients and states: what stays all the time
  Bytes on_host, on_disk;       // offloaded bytes
  Bytes offloaded_activations;  // the activations among them
  std::vector<ModuleMemory> by_module;
  Effort effort;  // of the forward and backward pass of one micro-batch
};

// The bytes of a model or a batch exceed 64 bits, though each size alone is in range.
class TooLargeError : public InputError {
 public:
  using InputError::InputError;
};

// `profile` describes the card's chip. Null: attention as on an A100, without workspaces and
// context. Throws InputError for an impossible config, UsageError for unsupported settings.
[[nodiscard]] Forecast forecast_of(const model::ModelConfig& config,
                                   const model::Settings& settings,
                                   const gpu::DeviceProfile* profile = nullptr);

// The number of parameters, as transformers counts them.
[[nodiscard]] long long count_parameters(const model::ModelConfig& config);

// Estimates the bytes that the caching allocator reserves for such a peak: 4 % more for parameters,
// buffers and optimizer states (unsplit blocks), 10 % more for gradients, activations and
// temporaries (gaps). Half of the estimates are within 5 % of the dry run's figure; small runs can
// reserve much more.
[[nodiscard]] Bytes reserved_for(const MemoryParts& at_peak);

}  // namespace headroom::forecast

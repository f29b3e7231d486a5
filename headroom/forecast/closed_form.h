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
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/forecast/effort.h"
#include "headroom/gpu/profile.h"
#include "headroom/model/model_config.h"
#include "headroom/model/run_settings.h"
#include "headroom/trace/report.h"

namespace headroom::forecast {

// One module (embeddings, a layer, a head): its parameters with their gradients and optimizer
// states, and the activations that it keeps for the backward pass.
struct ModuleMemory {
  std::string name;
  long long parameters = 0;
  Bytes bytes;
};

// The work of a module, for dividing a model among cards: embeddings, a list of layers, a head.
// Figures are of all of its layers together.
struct ModuleWork {
  std::string name;
  std::int64_t layers = 0;      // that a split of the model counts (models/model.h)
  std::vector<int> kinds = {};  // of each of them: equal ones are built alike
  long long parameters = 0, trainable_parameters = 0;
  Bytes resident = {};       // parameters, gradients and states
  Bytes gradients = {};      // among them
  Bytes kept = {};           // activations of one micro-batch, for the backward pass
  Effort forward, backward;  // of one micro-batch
};

struct Forecast {
  long long parameters = 0, trainable_parameters = 0;
  model::Settings settings;          // as given, with task, seq, target_seq and image decided
  std::vector<std::string> assumed;  // one sentence for each default that was taken
  trace::Parts at_peak;
  trace::Phase phase = trace::Phase::forward;
  // An estimate by reserved_for.
  Bytes reserved;
  Bytes process;                // reserved, and the CUDA context where the card's is known
  Bytes resident;               // parameters, gradients and states, which stay all the time
  Bytes on_host, on_disk;       // offloaded bytes
  Bytes offloaded_activations;  // the activations among them
  std::vector<ModuleMemory> by_module;
  Effort effort;                 // of the forward and backward pass of one micro-batch
  std::vector<ModuleWork> work;  // in the order in which the modules run; `effort` is their sum
};

// The bytes of a model or a batch exceed 64 bits, though each size alone is in range.
class TooLargeError : public InputError {
 public:
  using InputError::InputError;
};

// `profile` describes the card's chip. Null means attention as on an A100, without workspaces and
// context. Throws InputError for an impossible config, UsageError for unsupported settings.
[[nodiscard]] Forecast forecast_of(const model::ModelConfig& config,
                                   const model::Settings& settings,
                                   const gpu::DeviceProfile* profile = nullptr);

// The number of parameters, as transformers counts them.
[[nodiscard]] long long count_parameters(const model::ModelConfig& config);

// Estimates the bytes that the caching allocator reserves for such a peak: 4 % more for parameters,
// buffers and optimizer states (unsplit blocks), 10 % more for gradients, activations and
// temporaries (gaps), and 11 MiB (half of a segment of each kind) or a quarter of a small run. Half
// of the estimates are within 5 % of the dry run's figure; small runs can reserve much more.
[[nodiscard]] Bytes reserved_for(const trace::Parts& at_peak);

}  // namespace headroom::forecast

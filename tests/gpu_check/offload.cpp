// Activation offload: copies run on two streams beside the computation, so that a missing wait
// would show in the gradients.
#include "headroom/nn/offload.h"

#include <ATen/ATen.h>

#include "headroom/memory/memory_statistics.h"
#include "headroom/memory/scope.h"
#include "tests/gpu_check/check.h"
#include "tests/gpu_check/training.h"

namespace headroom::gpu_check {
namespace {

// On a real card copies have to take long enough to overlap with kernels.
TrainingSizes sizes_on(const Place& place) {
  if (place.is_simulated()) return {.layers = 3};
  return {.layers = 4, .width = 1024, .rows = 16, .tokens = 256};
}

struct Gradients {
  std::vector<at::Tensor> values;
  Bytes peak;
};

Gradients gradients(Training& training, c10::Device device, nn::Offload* offload) {
  const memory::GpuMemoryScope scope(device);
  at::Tensor loss;
  if (offload != nullptr) {
    const auto moving = offload->scope();
    loss = training.loss();
  } else {
    loss = training.loss();
  }
  loss.backward();
  const Bytes peak = scope.use().peak_rise;
  return {training.take_gradients(), peak};
}

}  // namespace

Outcome check_offload(Place& place) {
  const c10::Device device = place.open();
  Training training(device, sizes_on(place));
  (void)gradients(training, device, nullptr);  // takes cuBLAS's workspaces
  const Gradients plain = gradients(training, device, nullptr);
  std::vector<std::string> complaints;
  Json figures{{"plain_peak", plain.peak.count}, {"offload", Json::array()}};
  std::string words = "peak " + to_string(plain.peak);
  for (const bool pinned : {true, false})
    for (const int ahead : {0, 1, 2}) {
      const std::string how =
          std::string(pinned ? "pinned" : "pageable") + ", " + std::to_string(ahead) + " ahead";
      nn::Offload offload(training.parameters(),
                          {.smallest = Bytes{1 << 16}, .pinned = pinned, .ahead = ahead});
      for (int again = 0; again < 2; ++again) {
        const Gradients moved = gradients(training, device, &offload);
        if (!equal_to_the_bit(moved.values, plain.values))
          complaints.push_back(how + ": other gradients");
        if (moved.peak >= plain.peak) complaints.push_back(how + ": no less memory");
        if (again == 0) {
          if (pinned && ahead == 0) words += ", with offload " + to_string(moved.peak);
          figures["offload"].push_back({{"pinned", pinned},
                                        {"ahead", ahead},
                                        {"peak", moved.peak.count},
                                        {"peak_waiting", offload.use().peak_waiting.count},
                                        {"moved", offload.use().moved}});
        }
      }
      if (offload.use().moved == 0) complaints.push_back(how + ": nothing moved");
    }
  return judged(complaints, words + "; gradients equal to the bit in 12 passes",
                std::move(figures));
}

}  // namespace headroom::gpu_check

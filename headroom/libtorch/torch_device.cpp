#include "headroom/libtorch/torch_device.h"

#include <algorithm>

#include "headroom/base/error.h"

namespace headroom::libtorch {

c10::Device torch_device(const gpu::Selection& selection, const gpu::Machine& machine,
                         const gpu::CudaEnvironment& environment) {
  if (selection.cpu) return c10::Device(c10::kCPU);
  if (selection.picked.empty()) throw UnavailableError("torch_device", selection.sentence);
  const gpu::Card& card = selection.picked[0].card;
  const auto at = std::find_if(machine.cards.begin(), machine.cards.end(),
                               [&](const gpu::Card& other) { return other.uuid == card.uuid; });
  const auto position = static_cast<std::size_t>(at - machine.cards.begin());
  const auto number = cuda_number(cuda_view(machine, environment), position);
  if (!number)
    throw UnavailableError("torch_device", "CUDA_VISIBLE_DEVICES hides " + label(card) + " (" +
                                               card.name + ") from this process; try unsetting it");
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(*number)};
}

}  // namespace headroom::libtorch

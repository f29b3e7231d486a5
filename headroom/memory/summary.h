// A device's memory as text.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace headroom::memory {

// A shorter form of torch.cuda.memory_summary()'s table:
//
//   Memory of sim:0: 10.71 GiB free of 24.00 GiB
//                          now        peak  taken in all  given back
//   allocated        12.00 GiB   12.50 GiB     130.2 GiB   118.2 GiB
//   ...
//
// Peaks cover all tensors. Per-pool peaks are left out, because scopes would change them.
[[nodiscard]] std::string memory_summary(c10::Device device);

// The usual four lines for the end of a training run:
//
//   GPU Memory Summary (cuda:0):
//     Allocated: 5.23 GiB
//     Reserved: 6.45 GiB
//     Max Allocated: 7.12 GiB
//
// Always in GiB, for programs that parse it.
[[nodiscard]] std::string short_memory_summary(c10::Device device);

}  // namespace headroom::memory

// Without LibTorch: prints a GPU with room for 10 GiB, or who holds the memory.
//   which_gpu [sim:2x24GiB]
#include <headroom/gpu/devices.h>
#include <headroom/gpu/sampler.h>
#include <headroom/gpu/select.h>

#include <iostream>

int main(int argc, char** argv) {
  using namespace headroom::literals;
  namespace gpu = headroom::gpu;

  gpu::Sampler sampler(gpu::make_source(gpu::devices_from(argc > 1 ? argv[1] : "")));
  const gpu::Selection best = gpu::find_best_device(sampler.fresh(), {.need = 10_GiB});
  if (best.picked.empty()) {
    std::cout << best.sentence << "\n";
    return 75;
  }
  std::cout << label(best.picked[0].card) << " has " << to_string(best.picked[0].usable) << "\n";
}

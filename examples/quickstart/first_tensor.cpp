// With LibTorch: puts a tensor on the best device, which is the CPU if no GPU has room.
#include <ATen/ATen.h>
#include <headroom/gpu/nvml.h>
#include <headroom/gpu/sampler.h>
#include <headroom/libtorch/torch_device.h>

#include <iostream>

int main() {
  using namespace headroom::literals;
  namespace gpu = headroom::gpu;

  gpu::Sampler sampler(gpu::make_nvml_source());
  const gpu::Machine machine = sampler.fresh();
  const auto best = gpu::find_best_device(machine, {.need = 1_GiB, .allow_cpu = true});
  if (best.cpu) std::cout << best.sentence << "\n";

  const c10::Device device = headroom::libtorch::torch_device(best, machine);
  const at::Tensor ones = at::ones({2, 3}, at::TensorOptions().device(device));
  std::cout << "sum on " << device << ": " << ones.sum().item<float>() << "\n";
}

// Headroom's own operators: on the card the bits of the CPU's kernels, and how fast they move
// memory beside a copy.
#include <ATen/ATen.h>

#include <cmath>
#include <cstdio>
#include <functional>

#include "headroom/base/time.h"
#include "headroom/kernels/detail/calls.h"
#include "headroom/kernels/packed.h"
#include "headroom/memory/device_memory.h"
#include "tests/gpu_check/check.h"

namespace headroom::gpu_check {
namespace {

using kernels::Format;
using kernels::Packed;

struct Layout {
  const char* name;
  Format format;
  bool nested;
};
constexpr Layout kLayouts[] = {
    {"int8", Format::int8, false}, {"nf4", Format::nf4, false}, {"nf4 nested", Format::nf4, true}};
constexpr at::ScalarType kNumberTypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};

bool same_bits(const at::Tensor& one, const at::Tensor& other) {
  return at::equal(one.contiguous().flatten().view(at::kByte),
                   other.contiguous().flatten().view(at::kByte));
}

// Numbers of very different sizes, with a row of zeros.
at::Tensor matrix_with_zeros(std::int64_t rows, std::int64_t columns, at::ScalarType type) {
  at::Tensor numbers = at::randn({rows, columns}) * at::randn({rows, 1}).exp();
  numbers[rows / 2].zero_();
  return numbers.to(type);
}

// The mean of the scales is LibTorch's, whose order of additions differs between devices: the card
// quantises the CPU's scales with the CPU's mean.
void nest_again(const at::Tensor& weight, const Packed& here, const Packed& there) {
  const Packed plain = make_packed(Format::nf4, here.rows, here.columns, at::kCPU, false);
  pack(weight, plain);
  at::Tensor offset = there.offset;
  offset.copy_(here.offset);
  kernels::nf4_nest_(plain.scales.to(there.device()), offset, there.scales, there.nested_scales);
}

// What differs, by name.
std::vector<std::string> differences(c10::Device device, const Layout& layout, at::ScalarType type,
                                     std::int64_t rows, std::int64_t columns) {
  const at::Tensor weight = matrix_with_zeros(rows, columns, type);
  const Packed here = make_packed(layout.format, rows, columns, at::kCPU, layout.nested);
  const Packed there = make_packed(layout.format, rows, columns, device, layout.nested);
  pack(weight, here);
  pack(weight.to(device), there);
  const std::string what = std::string(layout.name) + " " + c10::toString(type) + " " +
                           std::to_string(rows) + "x" + std::to_string(columns);
  std::vector<std::string> found;
  if (layout.nested) nest_again(weight, here, there);
  for (std::size_t i = 0; i < here.tensors().size(); ++i)
    if (!same_bits(there.tensors()[i].cpu(), here.tensors()[i]))
      found.push_back(what + ": " + (i == 0 ? "codes" : "scales") + " differ");
  // Whole, and a part that begins inside a block and lies in a wider tensor.
  for (const std::int64_t from : {std::int64_t{0}, std::int64_t{1}}) {
    const at::Tensor ours = at::zeros({rows - from, columns + 3}, weight.options());
    const at::Tensor its = at::zeros({rows - from, columns + 3}, weight.options().device(device));
    for (const auto& [packed, tile] : {std::pair{&here, &ours}, {&there, &its}})
      unpack(*packed, from, from, tile->narrow(1, from, columns - from));
    if (!same_bits(its.cpu(), ours)) found.push_back(what + ": unpacked numbers differ");
  }
  return found;
}

// Seconds a call, the best of some.
double seconds_of(c10::Device device, const std::function<void()>& work) {
  memory::DeviceMemory& memory = memory::memory_of(device);
  double best = INFINITY;
  for (int run = 0; run < 5; ++run) {
    memory.synchronize(device.index());
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < 10; ++i) work();
    memory.synchronize(device.index());
    best = std::min(best, Seconds(Clock::now() - begin).count() / 10);
  }
  return best;
}

double gigabytes(const std::vector<at::Tensor>& tensors) {
  double bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<double>(tensor.nbytes());
  return bytes / 1e9;
}

// GB/s of packing and unpacking a matrix in bfloat16, and of a copy.
Json speeds(c10::Device device) {
  const std::int64_t size = device.is_cuda() ? 8192 : 256;
  const at::Tensor weight =
      at::empty({size, size}, at::TensorOptions(device).dtype(at::kBFloat16)).fill_(0.5);
  at::Tensor tile = at::empty_like(weight);
  Json figures = {
      {"copy_gb_s", gigabytes({weight, tile}) / seconds_of(device, [&] { tile.copy_(weight); })}};
  for (const Layout& layout : kLayouts) {
    const Packed packed = make_packed(layout.format, size, size, device, layout.nested);
    std::vector<at::Tensor> moved = packed.tensors();
    moved.push_back(tile);
    const std::string name = layout.name;
    figures[name + " pack_gb_s"] =
        gigabytes(moved) / seconds_of(device, [&] { pack(weight, packed); });
    figures[name + " unpack_gb_s"] =
        gigabytes(moved) / seconds_of(device, [&] { unpack(packed, 0, 0, tile); });
  }
  return figures;
}

std::string percent_of_copy(const Json& figures, const std::string& name) {
  char text[64];
  std::snprintf(text, sizeof text, "%.0f %%",
                100 * figures[name].get<double>() / figures["copy_gb_s"].get<double>());
  return text;
}

}  // namespace

Outcome check_kernels(Place& place) {
  const c10::Device device = place.open();
  std::vector<std::string> complaints;
  int compared = 0;
  for (const Layout& layout : kLayouts)
    for (const at::ScalarType type : kNumberTypes)
      for (const auto& [rows, columns] : {std::pair{7, 37}, {64, 64}, {40, 1000}, {300, 4096}}) {
        const auto found = differences(device, layout, type, rows, columns);
        complaints.insert(complaints.end(), found.begin(), found.end());
        ++compared;
      }
  Json figures = speeds(device);
  const std::string words = std::to_string(compared) +
                            " matrices to the bit; of a copy's speed, unpacked nf4 " +
                            percent_of_copy(figures, "nf4 nested unpack_gb_s") + ", int8 " +
                            percent_of_copy(figures, "int8 unpack_gb_s");
  return judged(complaints, words, std::move(figures));
}

}  // namespace headroom::gpu_check

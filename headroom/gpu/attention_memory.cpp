// Finds the kernel of CUTLASS that runs, and the memory that it works in.
// Source: the headers of the wheel, ATen/native/transformers/cuda/mem_eff_attention/kernels/
// cutlassF.h and cutlassB.h (the kernels in their order), kernel_backward.h (workspace_size and
// what it calls, kOutputInRF, kKernelComputesDelta), kernel_forward.h
// (kNeedsOutputAccumulatorBuffer), and aten/src/ATen/native/transformers/cuda/attention_backward.cu
// (how keys are split).
#include "headroom/gpu/attention_memory.h"

#include <algorithm>
#include <string>

#include "headroom/gpu/detail/divided_up.h"

namespace headroom::gpu {
namespace {

using detail::divided_up;

constexpr std::int64_t kAny = 65536;  // the kernels' name for any head dimension

std::int64_t aligned_up(std::int64_t n, std::int64_t to) {
  return divided_up(n, to) * to;
}

// A backward kernel's rows of queries and of keys per block, and the largest head dimension it
// takes.
struct Blocks {
  std::int64_t queries = 64, keys = 64, most_dim = kAny;
};

// Chips with at least 160 KiB of shared memory take the large blocks; 8.6, 8.9 and 12.x have 99.
bool has_much_shared_memory(int chip) {
  return chip == 80 || (chip >= 90 && chip < 120);
}

std::int64_t dim_class(std::int64_t dim) {
  return dim <= 32 ? 32 : dim <= 64 ? 64 : dim <= 128 ? 128 : kAny;
}

Blocks blocks_of(const EfficientCall& call) {
  const std::int64_t dim = std::max(call.head_dim, call.value_dim);
  const std::int64_t made_for = dim_class(dim);
  if (call.chip < 80 || made_for <= 64) return {64, 64, made_for};
  const bool large = has_much_shared_memory(call.chip);
  if (!call.half) return {large ? 128 : 64, 64, made_for};
  if (!call.dropout && dim <= 96 && (call.chip == 86 || call.chip == 89)) return {128, 64, 96};
  if (made_for == 128) return large ? Blocks{128, 128, 128} : Blocks{64, 64, 128};
  return {large ? 128 : 64, 64, kAny};
}

// True if the gradients of keys and values stay in registers.
bool keeps_in_registers(const EfficientCall& call, const Blocks& blocks) {
  return call.half && blocks.most_dim <= blocks.queries;
}

std::int64_t splits_of(const EfficientCall& call, const Blocks& blocks, bool accumulates) {
  if (call.chip < 70 || call.deterministic) return 1;
  const std::int64_t groups = call.batch * call.heads;
  std::int64_t splits = divided_up(call.keys, blocks.keys);
  if (groups >= 256 && call.keys <= 2 * blocks.keys) splits = 1;
  if (accumulates) splits = std::min(splits, 200 / std::max<std::int64_t>(groups, 1));
  return std::max<std::int64_t>(splits, 1);
}

}  // namespace

int chip_number(const DeviceProfile* profile) {
  if (profile == nullptr || profile->capabilities.empty()) return 80;
  const std::string& capability = profile->capabilities.front();
  const std::size_t dot = capability.find('.');
  return std::stoi(capability.substr(0, dot)) * 10 + std::stoi(capability.substr(dot + 1));
}

std::int64_t efficient_statistics(std::int64_t queries) {
  return aligned_up(queries, 32);
}

bool efficient_accumulates(const EfficientCall& call) {
  return call.half && std::max(call.head_dim, call.value_dim) > 128;
}

bool efficient_computes_delta(const EfficientCall& call) {
  const int arch = call.chip < 70 ? 50 : call.chip < 75 ? 70 : call.chip < 80 ? 75 : 80;
  return call.half && (keeps_in_registers(call, blocks_of(call)) || arch != 70);
}

std::int64_t efficient_workspace(const EfficientCall& call) {
  const Blocks blocks = blocks_of(call);
  const bool accumulates_kv = call.half && !keeps_in_registers(call, blocks);
  const bool accumulates_q = call.chip >= 70 || call.half;
  const std::int64_t splits = splits_of(call, blocks, accumulates_kv);
  std::int64_t floats = 0;
  if (accumulates_kv)
    floats +=
        splits * blocks.keys *
        (aligned_up(call.head_dim, blocks.queries) + aligned_up(call.value_dim, blocks.queries));
  if (accumulates_q)  // a tile with a lock, a counter and padding to 16 bytes
    floats += divided_up(call.queries, blocks.queries) * divided_up(call.head_dim, blocks.keys) *
              (4 + blocks.queries * blocks.keys);
  return call.batch * call.heads * aligned_up(floats, 4) * 4;
}

std::int64_t efficient_mask_row(std::int64_t keys) {
  return aligned_up(keys, 16);
}

FlashTile flash_tile(std::int64_t queries, std::int64_t head_dim) {
  return {aligned_up(queries, 128), aligned_up(head_dim, head_dim <= 128 ? 32 : 64)};
}

}  // namespace headroom::gpu

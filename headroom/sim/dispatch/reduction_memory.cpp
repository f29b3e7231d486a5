#include "headroom/sim/dispatch/reduction_memory.h"

#include <ATen/ATen.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/native/TensorIterator.h>

#include <algorithm>
#include <bitset>

#include "headroom/sim/card.h"
#include "headroom/sim/device/running_operator.h"
#include "headroom/sim/rules/results.h"

namespace headroom::sim::detail {
namespace {

using Dimensions = std::bitset<at::dim_bitset_size>;

// The dimensions that are reduced; none given, or an empty list, means all.
Dimensions reduced_dimensions(const Call& call, const at::Tensor& x) {
  const auto rank = static_cast<std::size_t>(x.dim());
  const auto at = call.handle.schema().argumentIndexWithName("dim");
  const c10::IValue dims =
      at ? call.stack[call.first + static_cast<std::size_t>(*at)] : c10::IValue();
  std::vector<std::int64_t> given;
  if (dims.isInt()) given = {dims.toInt()};
  if (dims.isIntList()) given = dims.toIntVector();
  if (given.empty()) return Dimensions().set() >> (at::dim_bitset_size - rank);
  return at::dim_list_to_bitset(given, rank);
}

int bytes_of_accumulator(rules::Sums sums, c10::ScalarType type) {
  switch (sums) {
    case rules::Sums::numbers:
      return static_cast<int>(c10::elementSize(rules::accumulation_type(type)));
    case rules::Sums::themselves:
      return static_cast<int>(c10::elementSize(type));
    case rules::Sums::places:
    case rules::Sums::moments:
      return 16;
    case rules::Sums::nothing:
      break;
  }
  return 0;
}

// Number of neighbours that the kernel reads at once: a power of two that divides every offset
// where it starts.
int read_at_once(const at::TensorIterator& iterator, std::int64_t offset, int first_kept) {
  const std::int64_t element = iterator.element_size(1);
  std::int64_t most = 4;
  const auto divides = [&](std::int64_t number) {
    while (number % most != 0) most /= 2;
  };
  divides(offset);
  divides(iterator.shape()[first_kept]);
  for (int i = 0; i < iterator.ndim(); ++i)
    if (i != first_kept) divides(iterator.strides(1)[i] / element);
  return static_cast<int>(most);
}

// Orders and joins the dimensions as LibTorch does.
gpu::Reduction described(const at::Tensor& x, const Dimensions& gone, int accumulator) {
  const at::TensorOptions meta = x.options().device(at::kMeta);
  std::vector<std::int64_t> sizes = x.sizes().vec(), places(sizes.size());
  std::int64_t step = 1;
  for (std::size_t i = sizes.size(); i-- > 0;)
    if (!gone[i]) {
      places[i] = step;
      step *= sizes[i];
    }
  const at::Tensor result = at::empty_strided(sizes, places, meta);
  const at::Tensor input = at::empty_strided(sizes, x.strides(), meta);
  at::Tensor out = result;
  const at::TensorIterator iterator = at::TensorIterator::reduce_op(out, input);
  const int reduced = iterator.num_reduce_dims(), all = iterator.ndim();
  const std::int64_t element = iterator.element_size(1);
  gpu::Reduction of{.results = iterator.num_output_elements(), .accumulator = accumulator};
  of.elements = iterator.numel() / of.results;
  of.innermost =
      all == 0 || reduced == all || iterator.strides(1)[0] < iterator.strides(1)[reduced];
  const bool neighbours = all == 0 || iterator.strides(1)[of.innermost ? 0 : reduced] == element;
  if (!neighbours) return of;
  if (!of.innermost)
    of.at_once = read_at_once(iterator, x.storage_offset(), reduced);
  else if (of.elements >= 128 && reduced == 1)
    of.at_once = 4;
  return of;
}

}  // namespace

gpu::ReductionMemory reduction_memory(const Call& call) {
  constexpr std::int64_t kFewest = 256;  // elements per result; with fewer, one block computes it
  if (call.op.entry == nullptr || call.op.entry->sums == rules::Sums::nothing) return {};
  const gpu::DeviceProfile* const chip = call.card->options().profile;
  if (chip == nullptr || call.card->rules() != Rules::cuda) return {};
  const c10::IValue& first = call.stack[call.first];
  if (!first.isTensor() || first.toTensor().numel() < kFewest) return {};
  const at::Tensor& x = first.toTensor();
  const Dimensions gone = reduced_dimensions(call, x);
  std::int64_t elements = 1;
  for (std::int64_t i = 0; i < x.dim(); ++i)
    if (gone[static_cast<std::size_t>(i)]) elements *= x.size(i);
  if (elements < kFewest) return {};
  const int accumulator = bytes_of_accumulator(call.op.entry->sums, x.scalar_type());
  return memory_of(described(x, gone, accumulator), *chip);
}

void reduce_through(const gpu::ReductionMemory& memory, const Call& call) {
  if (memory.parts.count == 0) return;
  const RunningScope scope(call.card, true);
  const auto bytes = at::dtype(at::kByte).device(call.card->device());
  const at::Tensor parts = at::empty({memory.parts.count}, bytes);
  const at::Tensor counters = at::empty({memory.counters.count}, bytes);
}

}  // namespace headroom::sim::detail

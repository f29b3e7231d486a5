#include "headroom/weights/detail/packed_tensors.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "headroom/base/error.h"
#include "headroom/libtorch/on.h"
#include "headroom/nn/quantise.h"
#include "headroom/weights/detail/bitsandbytes.h"

namespace headroom::weights::detail {
namespace {

using at::Tensor;
using kernels::Format;
using kernels::Packed;

std::int64_t blocks_of(std::int64_t numbers) {
  return (numbers + kNf4Block - 1) / kNf4Block;
}

Tensor text_tensor(const std::string& text) {
  const Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  std::copy(text.begin(), text.end(), bytes.data_ptr<std::uint8_t>());
  return bytes;
}

bool has_same_offset(const Packed& a, const Packed& b) {
  return a.offset.item<float>() == b.offset.item<float>();
}

Tensor cat_of(const std::vector<Packed>& parts, const Tensor Packed::*which) {
  std::vector<Tensor> tensors;
  for (const Packed& part : parts) tensors.push_back(part.*which);
  return at::cat(tensors);
}

bool scales_can_stay_nested(const std::vector<Packed>& parts) {
  for (const Packed& part : parts) {
    const bool is_last = &part == &parts.back();
    if (!part.is_nested() || !has_same_offset(part, parts.front())) return false;
    if (!is_last && part.scales.numel() % kNestedBlock != 0) return false;
  }
  return true;
}

}  // namespace

// What the kernels make of each code, so that files say what they mean here.
const Tensor& nf4_numbers() {
  static const Tensor numbers = [] {
    const libtorch::OnDeviceScope host(at::kCPU);
    const Packed packed = kernels::make_packed(Format::nf4, 1, 16, at::kCPU, /*nested=*/false);
    for (std::int64_t i = 0; i < 8; ++i)
      packed.codes[i].fill_((2 * i) << 4 | (2 * i + 1));  // the first of two is the high half
    packed.scales.fill_(1);
    Tensor all = at::empty({1, 16}, at::kFloat);
    kernels::unpack(packed, 0, 0, all);
    return all.view({16});
  }();
  return numbers;
}

const Tensor& nested_numbers() {
  static const Tensor numbers = [] {
    const libtorch::OnDeviceScope host(at::kCPU);
    const Packed packed =
        kernels::make_packed(Format::nf4, 256, kNf4Block, at::kCPU, /*nested=*/true);
    packed.codes.fill_(0xff);  // 1, times the scale
    packed.scales.copy_(at::arange(256, at::kByte));
    packed.nested_scales.fill_(1);
    packed.offset.zero_();
    const Tensor all = at::empty({256, kNf4Block}, at::kFloat);
    kernels::unpack(packed, 0, 0, all);
    return all.select(1, 0).contiguous();
  }();
  return numbers;
}

Packed with_float_scales(const Packed& packed) {
  if (!packed.is_nested()) return packed;
  const Tensor numbers = nested_numbers().to(packed.device());
  const Tensor each =
      packed.nested_scales.repeat_interleave(kNestedBlock).narrow(0, 0, packed.scales.numel());
  Packed plain = packed;
  plain.scales = numbers.index_select(0, packed.scales.to(at::kInt)).mul_(each).add_(packed.offset);
  plain.nested_scales = plain.offset = Tensor();
  return plain;
}

bool can_cut(const Packed& packed, std::int64_t first, std::int64_t rows) {
  if (packed.format == Format::int8) return true;
  const std::int64_t unit = kNf4Block * (packed.is_nested() ? kNestedBlock : 1);
  const std::int64_t begin = first * packed.columns, end = (first + rows) * packed.columns;
  return begin % unit == 0 && (end % unit == 0 || first + rows == packed.rows);
}

Packed cut(const Packed& packed, std::int64_t first, std::int64_t rows) {
  if (!can_cut(packed, first, rows))
    throw UsageError(expectation("save", "experts of a multiple of 64 numbers",
                                 std::to_string(rows) + " x " + std::to_string(packed.columns)));
  Packed part = packed;
  part.rows = rows;
  if (packed.format == Format::int8) {
    part.codes = packed.codes.narrow(0, first, rows);
    part.scales = packed.scales.narrow(0, first, rows);
    return part;
  }
  const std::int64_t begin = first * packed.columns, numbers = rows * packed.columns;
  const std::int64_t blocks = blocks_of(numbers);
  part.codes = packed.codes.narrow(0, begin / 2, (numbers + 1) / 2);
  part.scales = packed.scales.narrow(0, begin / kNf4Block, blocks);
  if (packed.is_nested())
    part.nested_scales = packed.nested_scales.narrow(0, begin / kNf4Block / kNestedBlock,
                                                     (blocks + kNestedBlock - 1) / kNestedBlock);
  return part;
}

Packed joined(const std::vector<Packed>& parts) {
  if (parts.size() == 1) return parts.front();
  const Packed& first = parts.front();
  if (first.format == Format::nf4 && first.rows * first.columns % kNf4Block != 0)
    throw InputError(expectation("load", "experts of a multiple of 64 numbers",
                                 std::to_string(first.rows) + " x " + std::to_string(first.columns),
                                 "the checkpoint that it was made from, and quantise that"));
  std::vector<Packed> all = parts;
  const bool nested = scales_can_stay_nested(parts);
  if (!nested) std::transform(all.begin(), all.end(), all.begin(), with_float_scales);
  Packed whole = all.front();
  whole.rows = 0;
  for (const Packed& part : all) whole.rows += part.rows;
  whole.codes = cat_of(all, &Packed::codes);
  whole.scales = cat_of(all, &Packed::scales);
  if (nested) whole.nested_scales = cat_of(all, &Packed::nested_scales);
  return whole;
}

const char* name_of(at::ScalarType type) {
  switch (type) {
    case at::kBFloat16:
      return "bfloat16";
    case at::kHalf:
      return "float16";
    case at::kDouble:
      return "float64";
    default:
      return "float32";
  }
}

void add_packed(NamedTensors& to, const std::string& name, const Packed& packed,
                at::ScalarType type, at::IntArrayRef shape) {
  if (packed.format == Format::int8) {
    to.emplace_back(name, shape.empty() ? packed.codes : packed.codes.view(shape));
    to.emplace_back(scb_of(name), packed.scales);
    to.emplace_back(format_of(name), at::zeros({}, at::kByte));
    return;
  }
  Nf4State state{.type = name_of(type), .shape = {packed.rows, packed.columns}};
  if (!shape.empty()) state.shape = shape.vec();
  to.emplace_back(name, packed.codes.view({-1, 1}));
  to.emplace_back(name + kAbsmax, packed.scales);
  to.emplace_back(name + kQuantMap, nf4_numbers());
  if (packed.is_nested()) {
    state.is_nested = true;
    state.offset = packed.offset.item<double>();
    to.emplace_back(name + kNestedAbsmax, packed.nested_scales);
    to.emplace_back(name + kNestedQuantMap, nested_numbers());
  }
  to.emplace_back(name + kNf4State, text_tensor(to_json(state)));
}

void add_parameter(NamedTensors& to, const std::string& name, const Tensor& parameter) {
  const Packed* const packed = nn::packed_of(parameter);
  if (packed == nullptr) {
    to.emplace_back(name, parameter);
    return;
  }
  const bool transposed = nn::is_packed_transposed(parameter);
  add_packed(to, name, *packed, parameter.scalar_type(),
             transposed ? at::IntArrayRef() : parameter.sizes());
  if (transposed) to.emplace_back(name + kTransposed, at::ones({}, at::kByte));
}

}  // namespace headroom::weights::detail

#include "headroom/weights/detail/stored_weight.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>

#include "headroom/base/error.h"
#include "headroom/nn/quantise.h"
#include "headroom/weights/detail/packed_tensors.h"
#include "headroom/weights/detail/safetensors_bytes.h"
#include "headroom/weights/detail/safetensors_json.h"
#include "headroom/weights/detail/safetensors_types.h"

namespace headroom::weights::detail {
namespace {

using at::Tensor;
using kernels::Format;
using kernels::Packed;

std::string_view bytes_of(const CheckpointTensor& tensor) {
  return tensor.file->bytes_of(*tensor.tensor);
}

std::int64_t product_of(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t ceiling(std::int64_t numbers, std::int64_t unit) {
  return (numbers + unit - 1) / unit;
}

void copy_part(const CheckpointTensor& from, const Tensor& to) {
  copy_in(bytes_of(from), to.scalar_type(), to, SafetensorsFile::forget);
}

Tensor matrix_of(const Tensor& tensor) {
  return tensor.dim() == 2 ? tensor : tensor.view({-1, tensor.size(-1)});
}

void unpack_into(const Tensor& to, const Packed& packed, bool transposed) {
  if (to.is_contiguous() && !transposed)
    return kernels::unpack(packed, 0, 0, to.detach().view({packed.rows, packed.columns}));
  const Tensor rows = at::empty({packed.rows, packed.columns}, to.options().requires_grad(false));
  kernels::unpack(packed, 0, 0, rows);
  to.detach().copy_(transposed ? rows.t() : rows.view(to.sizes()));
}

// Numbers that are not quantised, into a quantised weight.
void pack_as_read(const Packed& into, const at::TensorOptions& as,
                  const std::vector<StoredWeight>& from) {
  const std::int64_t unit = into.format == Format::int8 ? into.columns : kNf4Block;
  kernels::Packer packer(into);
  for (const StoredWeight& part : from) part.add_to(packer, as, unit);
  packer.finish();
}

void pack_transposed(const Packed& into, const at::TensorOptions& as, const StoredWeight& from) {
  const Tensor whole = at::empty({into.columns, into.rows}, as);
  from.copy_into(whole);
  kernels::pack(whole.t(), into);
}

}  // namespace

StoredTensors by_name(const SafetensorsFile& file) {
  StoredTensors all;
  for (const StoredTensor& tensor : file.tensors()) all[tensor.name] = {&file, &tensor};
  return all;
}

std::vector<std::string> weights_in(const StoredTensors& all) {
  std::vector<std::string> names;
  const auto is_there = [&](const std::string& weight) { return all.count(weight) > 0; };
  for (const auto& [name, tensor] : all)
    if (const auto weights = described_by(name);
        std::none_of(weights.begin(), weights.end(), is_there))
      names.push_back(name);
  return names;
}

StoredWeight::StoredWeight(const StoredTensors& all, const std::string& name)
    : all_(all), name_(name), own_(all.at(name)), shape_(own_.tensor->shape) {
  if (find(kFp4State) != nullptr)
    refuse("NF4 or 8 bit", "FP4", "the checkpoint that it was made from, and quantise that");
  if (find(kNf4State) != nullptr)
    describe_nf4();
  else if (all_.count(scb_of(name_)) > 0)
    describe_int8();
}

const CheckpointTensor* StoredWeight::find(const std::string& end) const {
  const auto found = all_.find(name_ + end);
  return found == all_.end() ? nullptr : &found->second;
}

void StoredWeight::refuse(const std::string& expected, const std::string& received,
                          const std::string& to_try) const {
  throw InputError(expectation("load",
                               expected + " for tensor " + in_quotes(name_) + " in " +
                                   own_.file->name() + ", byte " +
                                   std::to_string(own_.tensor->begin),
                               received, to_try));
}

const CheckpointTensor& StoredWeight::part(const std::string& name, std::int64_t numbers,
                                           std::string_view type) const {
  const auto found = all_.find(name);
  if (found == all_.end()) refuse(in_quotes(name), "none");
  const std::int64_t its = product_of(found->second.tensor->shape);
  const std::string_view its_type = found->second.tensor->type->name;
  if (its != numbers || its_type != type)
    refuse(std::to_string(numbers) + " numbers of " + std::string(type) + " in " + in_quotes(name),
           std::to_string(its) + " of " + std::string(its_type));
  return found->second;
}

void StoredWeight::check_numbers(const std::string& name, const Tensor& right) const {
  const CheckpointTensor& map = part(name, right.numel(), "F32");
  const Tensor its = at::empty_like(right);
  copy_part(map, its);
  if (!at::allclose(its, right, /*rtol=*/0, /*atol=*/1e-6))
    refuse("the numbers that its codes stand for in " + in_quotes(map.tensor->name),
           "other numbers", "the checkpoint that it was made from, and quantise that");
}

void StoredWeight::describe_nf4() {
  const CheckpointTensor& described = *find(kNf4State);
  const Nf4State state = nf4_state_from(
      bytes_of(described), in_quotes(described.tensor->name) + " in " + own_.file->name());
  const std::int64_t numbers = product_of(state.shape), blocks = ceiling(numbers, kNf4Block);
  if (state.shape.size() < 2 ||
      bytes_of(own_).size() != static_cast<std::size_t>((numbers + 1) / 2))
    refuse(std::to_string((numbers + 1) / 2) + " bytes, as its shape says,",
           std::to_string(bytes_of(own_).size()));
  check_numbers(name_ + kQuantMap, nf4_numbers());
  parts_.push_back(part(name_ + kAbsmax, blocks, state.is_nested ? "U8" : "F32"));
  if (state.is_nested) {
    parts_.push_back(part(name_ + kNestedAbsmax, ceiling(blocks, kNestedBlock), "F32"));
    check_numbers(name_ + kNestedQuantMap, nested_numbers());
  }
  format_ = Format::nf4;
  shape_ = state.shape;
  offset_ = state.offset;
}

void StoredWeight::describe_int8() {
  if (own_.tensor->type->name != "I8" || shape_.size() < 2 || product_of(shape_) == 0)
    refuse("a matrix of I8 beside its SCB", std::string(own_.tensor->type->name) + " with " +
                                                std::to_string(product_of(shape_)) + " numbers");
  if (const auto layout = all_.find(format_of(name_)); layout != all_.end())
    if (const std::string_view bytes = bytes_of(layout->second); !bytes.empty() && bytes[0] != 0)
      refuse("rows of numbers", "weight_format " + std::to_string(bytes[0]),
             "a file that was saved by bitsandbytes 0.40 or later");
  const std::int64_t rows = product_of(shape_) / shape_.back();
  parts_.push_back(part(scb_of(name_), rows, "F32"));
  format_ = Format::int8;
}

Bytes StoredWeight::bytes() const {
  Bytes all{static_cast<std::int64_t>(bytes_of(own_).size())};
  for (const CheckpointTensor& part : parts_)
    all += Bytes{static_cast<std::int64_t>(bytes_of(part).size())};
  return all;
}

at::ScalarType StoredWeight::type() const {
  const auto type = weight_type(own_.tensor->type->name);
  if (!type)
    refuse("a type that weights have (F64, F32, F16, BF16, or whole numbers)",
           std::string(own_.tensor->type->name),
           "the checkpoint that it was made from, which is not quantized");
  return *type;
}

Packed StoredWeight::packed(c10::Device device) const {
  const std::int64_t columns = shape_.back(), rows = product_of(shape_) / columns;
  const bool nested = parts_.size() > 1;
  Packed packed = kernels::make_packed(*format_, rows, columns, device, nested);
  copy_part(own_, packed.codes);
  copy_part(parts_[0], packed.scales);
  if (nested) {
    copy_part(parts_[1], packed.nested_scales);
    packed.offset.fill_(offset_);
  }
  return packed;
}

void StoredWeight::copy_into(const Tensor& to) const {
  if (is_quantised()) return unpack_into(to, packed(to.device()), is_transposed());
  copy_in(bytes_of(own_), type(), to, SafetensorsFile::forget);
}

void StoredWeight::add_to(kernels::Packer& packer, const at::TensorOptions& as,
                          std::int64_t unit) const {
  in_pieces(
      bytes_of(own_), type(), as, unit, [&](const Tensor& piece) { packer.add(piece); },
      SafetensorsFile::forget);
}

void read_weight(const Tensor& parameter, const std::vector<StoredWeight>& from, bool transposed,
                 bool as_stored) {
  const at::NoGradGuard no_grad;
  const Packed* const into = nn::packed_of(parameter);
  const auto quantised = std::count_if(
      from.begin(), from.end(), [](const StoredWeight& part) { return part.is_quantised(); });
  if (quantised != 0 && quantised != static_cast<std::int64_t>(from.size()))
    from.front().refuse("experts that are quantised alike", "some that are not");
  const bool can_keep = as_stored || into != nullptr || nn::is_without_memory(parameter);
  if (quantised != 0 && can_keep) {
    std::vector<Packed> parts;
    for (const StoredWeight& part : from) parts.push_back(part.packed(parameter.device()));
    return nn::set_packed(parameter, joined(parts), transposed);
  }
  const auto as = at::TensorOptions(parameter.device()).dtype(parameter.scalar_type());
  if (into != nullptr)
    return transposed ? pack_transposed(*into, as, from.front()) : pack_as_read(*into, as, from);
  if (from.size() == 1 && quantised != 0)
    return unpack_into(parameter, from.front().packed(parameter.device()), transposed);
  if (from.size() == 1) return from.front().copy_into(parameter);
  const Tensor rows = matrix_of(parameter.detach());
  std::int64_t first = 0;
  for (const StoredWeight& part : from) {
    const std::int64_t count = product_of(part.shape()) / rows.size(1);
    part.copy_into(rows.narrow(0, first, count));
    first += count;
  }
}

}  // namespace headroom::weights::detail

#include "headroom/sim/device/reads.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "headroom/sim/device/alias.h"
#include "headroom/sim/device/block.h"
#include "headroom/sim/device/known.h"

namespace headroom::sim::detail {
namespace {

using at::Tensor;

Tensor over(const Tensor& tensor, void* data) {
  return rewrapped(tensor,
                   {c10::Storage::use_byte_size_t(), tensor.storage().nbytes(),
                    c10::DataPtr(data, c10::Device(c10::kCPU)), nullptr, false},
                   c10::DispatchKey::CPU);
}

at::TensorOptions host_options(const Tensor& tensor) {
  return at::TensorOptions(tensor.scalar_type()).device(c10::kCPU);
}

Tensor zeros(const Tensor& tensor, at::IntArrayRef sizes) {
  return at::zeros({}, host_options(tensor)).expand(sizes);
}

Tensor element_of(const Tensor& tensor) {
  return at::from_blob(block_of(tensor.storage())->reads.get(), {}, host_options(tensor));
}

void keep_one(const Tensor& element, const Tensor& to) {
  Block* const block = block_of(to.storage());
  block->reads = c10::GetCPUAllocator()->allocate(1);
  block->reads_alike = true;
  element_of(to).copy_(element.reshape({}));
}

}  // namespace

bool reads_alike(const Tensor& tensor) {
  const Block* const block = block_of(tensor.storage());
  return block != nullptr && block->reads_alike && tensor.itemsize() == 1;
}

bool keeps_one(const Tensor& tensor) {
  return on_card(tensor) && tensor.scalar_type() == at::kBool && covers_its_storage(tensor);
}

std::optional<Tensor> one_of(const Tensor& tensor) {
  const bool one = tensor.numel() == 1;
  if (!on_card(tensor)) return one ? std::optional(tensor) : std::nullopt;
  if (tensor.numel() == 0 || block_of(tensor.storage()) == nullptr) return {};
  if (one) return as_read(tensor);
  const at::DimVector sizes(static_cast<std::size_t>(tensor.dim()), 1);
  if (reads_alike(tensor)) return element_of(tensor).expand(sizes);
  const bool has_values = is_known(tensor) || block_of(tensor.storage())->reads;
  return has_values ? std::nullopt : std::optional(zeros(tensor, sizes));
}

Tensor room_for_reads(const Tensor& tensor) {
  Block* const block = block_of(tensor.storage());
  if (!block->reads) {
    block->reads = c10::GetCPUAllocator()->allocate(block->bytes);
    std::memset(block->reads.get(), 0, block->bytes);
  }
  return over(tensor, block->reads.get());
}

void keep_reads(const Tensor& from, const Tensor& to) {
  TORCH_CHECK(from.scalar_type() == to.scalar_type());
  if (to.numel() == 0) return;
  if (!keeps_reads(to) && keeps_one(to)) return keep_one(from, to);
  room_for_reads(to).copy_(from.expand(to.sizes()));
  make_finite(to);
}

void make_finite(const Tensor& tensor) {
  if (!tensor.is_floating_point() || tensor.numel() != 1) return;
  Tensor read = as_read(tensor);
  if (!std::isfinite(read.item<double>())) read.zero_();
}

Tensor as_read(const Tensor& tensor) {
  if (!on_card(tensor)) return tensor;
  if (tensor.numel() == 0) return zeros(tensor, tensor.sizes());
  if (is_known(tensor)) return over(tensor, tensor.storage().mutable_data());
  if (reads_alike(tensor)) return element_of(tensor).expand(tensor.sizes());
  const Block* const block = block_of(tensor.storage());
  if (block == nullptr || !block->reads || block->reads_alike) return zeros(tensor, tensor.sizes());
  return over(tensor, block->reads.get());
}

bool reads_equal(const Tensor& one, const Tensor& other) {
  const std::optional<Tensor> a = one_of(one), b = one_of(other);
  return a && b ? at::equal(*a, *b) : at::equal(as_read(one), as_read(other));
}

bool keeps_reads(const Tensor& tensor) {
  if (!on_card(tensor) || !tensor.has_storage() || tensor.is_complex()) return false;
  if (tensor.numel() == 0) return true;
  if (is_known(tensor) || block_of(tensor.storage()) == nullptr) return false;
  const bool is_whole = c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
  return tensor.storage().nbytes() == tensor.itemsize() || (is_whole && is_small(tensor));
}

void forget_reads(const Tensor& tensor) {
  if (!on_card(tensor) || !tensor.has_storage()) return;
  if (Block* const block = block_of(tensor.storage())) {
    block->reads = {};
    block->reads_alike = false;
  }
}

void copy_reads(const Tensor& from, const Tensor& to) {
  if (keeps_reads(to) && is_small(from))
    room_for_reads(to).copy_(as_read(from));
  else if (const auto one = keeps_one(to) ? one_of(from) : std::nullopt)
    keep_one(*one, to);
  else
    forget_reads(to);
}

void forget(const Tensor& tensor, bool still_read) {
  if (!on_card(tensor) || !tensor.has_storage()) return;
  Block* const block = block_of(tensor.storage());
  if (block == nullptr) return;
  block->blank = false;
  if (tensor.storage().data() != nullptr && !is_of_computing(tensor)) {
    c10::DataPtr known = std::move(block->host);
    give_data(tensor.storage(), c10::DataPtr(nullptr, c10::Device(c10::kCPU)));
    if (still_read && keeps_reads(tensor)) block->reads = std::move(known);
  }
  if (!still_read) forget_reads(tensor);
}

}  // namespace headroom::sim::detail

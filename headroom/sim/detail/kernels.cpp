#include "headroom/sim/detail/kernels.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>

#include "headroom/sim/detail/alias.h"
#include "headroom/sim/detail/block.h"
#include "headroom/sim/detail/cards.h"
#include "headroom/sim/detail/executing.h"

namespace headroom::sim::detail {
namespace {

using at::Tensor;
using c10::Device;
using c10::IntArrayRef;
using c10::Layout;
using c10::MemoryFormat;
using c10::ScalarType;
constexpr c10::DispatchKeySet kKeys{c10::DispatchKey::PrivateUse1};

Device device_or_current(std::optional<Device> device) {
  const int index = device && device->has_index() ? device->index() : current_card();
  return card_at(index).device();
}

Tensor empty(IntArrayRef sizes, std::optional<ScalarType> type, std::optional<Layout>,
             std::optional<Device> device, std::optional<bool>,
             std::optional<MemoryFormat> format) {
  const c10::DeviceGuard guard(device_or_current(device));
  return at::detail::empty_generic(sizes, device_allocator(), kKeys,
                                   c10::dtype_or_default(type), format);
}

Tensor empty_strided(IntArrayRef sizes, IntArrayRef strides, std::optional<ScalarType> type,
                     std::optional<Layout>, std::optional<Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(device_or_current(device));
  return at::detail::empty_strided_generic(sizes, strides, device_allocator(), kKeys,
                                           c10::dtype_or_default(type));
}

bool has_data(const Tensor& tensor) {
  return tensor.numel() == 0 || tensor.storage().data() != nullptr;
}

// A CPU tensor over the card's host memory.
Tensor on_host(Aliases& aliases, const Tensor& tensor) {
  return on_card(tensor) ? aliases.of(tensor) : tensor;
}

// As CUDA's copy kernel: what differs in type or layout goes through temporaries on the card when
// the other side is the host or another card.
// Source: aten/src/ATen/native/cuda/Copy.cu, copy_requires_temporaries, copy_kernel_cuda.
bool needs_temporaries(const Tensor& from, const Tensor& to) {
  const bool same_type = from.scalar_type() == to.scalar_type();
  if (same_type && from.is_contiguous() && to.is_contiguous()) return false;
  if (on_card(from) && on_card(to)) return from.device() != to.device() && !same_type;
  const bool same_layout = from.is_non_overlapping_and_dense() && from.strides() == to.strides();
  return !(same_type && same_layout);
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool non_blocking) {
  if (to.numel() == 0) return to;
  if (from.device() != to.device() && needs_temporaries(from, to)) {
    // The side on a card does the conversion, the host only sees what is contiguous.
    const Tensor expanded = from.expand_as(to);
    const Tensor ready = on_card(from)
                             ? expanded.to(to.scalar_type()).contiguous()
                             : expanded.contiguous();
    if (!on_card(from) && from.scalar_type() != to.scalar_type()) {
      // Host to card with another type: as it is over to the card, converted there.
      const Tensor there = at::empty_like(ready, ready.options().device(to.device()),
                                          MemoryFormat::Contiguous);
      copy_from(ready, there, non_blocking);
      to.copy_(there, non_blocking);
      return to;
    }
    if (on_card(to) && !to.is_contiguous()) {
      const Tensor there = at::empty_like(ready, to.options(), MemoryFormat::Contiguous);
      copy_from(ready, there, non_blocking);
      to.copy_(there, non_blocking);
      return to;
    }
    if (ready.device() != to.device() && (ready.is_contiguous() && to.is_contiguous()))
      return copy_from(ready, to, non_blocking);
  }
  const Card& card = card_at(on_card(to) ? to.device().index() : from.device().index());
  const bool computes = mode_now(card) == Mode::compute;
  if (computes || (has_data(from) && has_data(to))) {
    Aliases aliases(c10::DeviceType::CPU);
    on_host(aliases, to).copy_(on_host(aliases, from));
  } else if (!on_card(to)) {
    Tensor host = to;
    host.zero_();  // what a shape-only card holds reads as zero
  }
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar value_of(const Tensor& tensor) {
  Card& card = card_at(tensor.device().index());
  if (mode_now(card) == Mode::compute) {
    Aliases aliases(c10::DeviceType::CPU);
    return aliases.of(tensor).item();
  }
  card.note_value_read();
  if (tensor.is_complex()) return c10::complex<double>(0.0);
  if (tensor.is_floating_point()) return 0.0;
  if (tensor.scalar_type() == at::kBool) return false;
  return std::int64_t{0};
}

const Tensor& resize(const Tensor& tensor, IntArrayRef sizes,
                     std::optional<MemoryFormat> format) {
  return at::native::resize_(tensor, sizes, format);
}

}  // namespace

void register_kernels(torch::Library& aten) {
  aten.impl("empty.memory_format", &empty);
  aten.impl("empty_strided", &empty_strided);
  aten.impl("_copy_from", &copy_from);
  aten.impl("_copy_from_and_resize", &copy_from_and_resize);
  aten.impl("_local_scalar_dense", &value_of);
  aten.impl("resize_", &resize);
  aten.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  aten.impl("view", TORCH_FN(at::native::view));
  aten.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
}

}  // namespace headroom::sim::detail

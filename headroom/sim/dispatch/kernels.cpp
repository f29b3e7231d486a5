#include "headroom/sim/dispatch/registration.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/TensorIterator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/one_hot_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>

#include "headroom/base/error.h"
#include "headroom/libtorch/operator_refusal.h"
#include "headroom/sim/device/alias.h"
#include "headroom/sim/device/block.h"
#include "headroom/sim/device/cards.h"
#include "headroom/sim/device/known.h"
#include "headroom/sim/device/reads.h"
#include "headroom/sim/device/running_operator.h"
#include "headroom/sim/dispatch/stream_uses.h"

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

// Marks tensors of the program as blank; results of an operator are about to be written.
Tensor as_blank(Tensor tensor) {
  if (Block* const block = block_of(tensor.storage()); block != nullptr)
    block->blank = running.card == nullptr;
  return tensor;
}

Tensor empty(IntArrayRef sizes, std::optional<ScalarType> type, std::optional<Layout>,
             std::optional<Device> device, std::optional<bool>,
             std::optional<MemoryFormat> format) {
  const c10::DeviceGuard guard(device_or_current(device));
  return as_blank(at::detail::empty_generic(sizes, device_allocator(), kKeys,
                                            c10::dtype_or_default(type), format));
}

Tensor empty_strided(IntArrayRef sizes, IntArrayRef strides, std::optional<ScalarType> type,
                     std::optional<Layout>, std::optional<Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(device_or_current(device));
  return as_blank(at::detail::empty_strided_generic(sizes, strides, device_allocator(), kKeys,
                                                    c10::dtype_or_default(type)));
}

// Zeros without memory, from which forward derivatives start.
Tensor memoryless_zeros(IntArrayRef sizes, std::optional<ScalarType> type, std::optional<Layout>,
                        std::optional<Device> device, std::optional<bool>) {
  at::native::ZeroTensorAllocator allocator(device_or_current(device));
  return at::detail::empty_generic(sizes, &allocator,
                                   kKeys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor),
                                   c10::dtype_or_default(type), std::nullopt);
}

bool has_data(const Tensor& tensor) {
  return tensor.numel() == 0 || tensor.storage().data() != nullptr;
}

// Large known tensors came from the host, too.
bool comes_from_host(const Tensor& known) {
  return !on_card(known) || !is_small(known);
}

// A CPU tensor over the card's host memory.
Tensor on_host(Aliases& aliases, const Tensor& tensor) {
  return on_card(tensor) ? aliases.of(tensor) : tensor;
}

// True if both sides have their elements in the same order and without gaps, so that a copy between
// them moves plain bytes.
bool lie_alike(const Tensor& from, const Tensor& to) {
  if (from.is_contiguous() && to.is_contiguous()) return true;
  return at::TensorIteratorConfig()
      .set_check_mem_overlap(false)
      .add_output(to)
      .add_const_input(from)
      .resize_outputs(false)
      .check_all_same_dtype(false)
      .check_all_same_device(false)
      .build()
      .is_contiguous();
}

// Between a card and the host only bytes are moved. Between cards the copy kernel converts as well,
// as they reach each other's memory.
// Source: aten/src/ATen/native/cuda/Copy.cu, copy_requires_temporaries.
bool needs_temporaries(const Tensor& from, const Tensor& to) {
  if (on_card(from) && on_card(to)) return false;
  return from.scalar_type() != to.scalar_type() || !lie_alike(from, to);
}

// `from` in this type and in `to`'s sizes. Values of the host that the card will not know are not
// converted: a model of many gigabytes that moves to a card costs nothing.
Tensor as_bytes_to_move(const Tensor& from, ScalarType type, const Tensor& to) {
  const bool is_unread = !on_card(from) && !is_known_on_host(from) && on_card(to) &&
                         mode_now(card_at(to.device().index())) == Mode::shape_only;
  if (is_unread) return at::empty(to.sizes(), from.options().dtype(type));
  return from.to(type).expand_as(to).contiguous();
}

// Copies into contiguous tensors, across, and into place. Types are converted on the card if the
// copy is non-blocking, else on the host, where that takes no memory of the card.
// Source: aten/src/ATen/native/cuda/Copy.cu, copy_kernel_cuda.
void copy_through_temporaries(const Tensor& from, const Tensor& to, bool non_blocking) {
  const bool convert_first = on_card(from) == non_blocking;
  const ScalarType type = convert_first ? to.scalar_type() : from.scalar_type();
  const Tensor there = to.is_contiguous() && to.scalar_type() == type
                           ? to
                           : at::empty_like(to, to.options().dtype(type), MemoryFormat::Contiguous);
  there.copy_(as_bytes_to_move(from, type, to), non_blocking);
  if (!there.is_same(to)) to.copy_(there, non_blocking);
}

// Copies the data where both sides have some; on a shape-only card unknown values are copied as
// they read.
void copy_values(const Tensor& from, const Tensor& to, bool non_blocking) {
  for (const Tensor* const tensor : {&from, &to})
    if (on_card(*tensor)) check_lives(*tensor);
  Card& card = card_at(on_card(to) ? to.device().index() : from.device().index());
  copy_on_stream(from, to, non_blocking);
  if (on_card(to) && has_data(from)) make_room_for_values(to, comes_from_host(from));
  if (mode_now(card) == Mode::compute || (has_data(from) && has_data(to))) {
    Aliases aliases(c10::DeviceType::CPU);
    on_host(aliases, to).copy_(on_host(aliases, from));
  } else if (!on_card(to)) {
    card.note_value_read();
    to.copy_(as_read(from));
  } else {
    forget(to, true);
    copy_reads(from, to);
  }
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool non_blocking) {
  if (to.numel() == 0) return to;
  const Tensor expanded = from.expand_as(to);
  if (needs_temporaries(expanded, to))
    copy_through_temporaries(from, to, non_blocking);
  else
    copy_values(expanded, to, non_blocking);
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

// LibTorch's own function, but with an operator name, and reported to the observer: the copy of
// lower precision that autocast makes of a weight shows which module runs.
Tensor to_copy(const Tensor& from, std::optional<ScalarType> type, std::optional<Layout> layout,
               std::optional<Device> device, std::optional<bool> pinned, bool non_blocking,
               std::optional<MemoryFormat> format) {
  constexpr std::string_view kName = "aten::_to_copy";
  std::optional<RunningScope> scope;
  std::optional<trace::OperationScope> named;
  if (on_card(from) &&
      running.card == nullptr) {  // otherwise from the host, or part of an operator
    check_lives(from);
    Card& card = card_at(from.device().index());
    const c10::IValue argument = from;
    if (card.observer() != nullptr) card.observer()->on_operator({kName, &argument, 1});
    scope.emplace(&card, running.planning);
    named.emplace(kName);
  }
  return at::native::_to_copy(from, type, layout, device, pinned, non_blocking, format);
}

at::Scalar value_of(const Tensor& tensor) {
  check_lives(tensor);
  Card& card = card_at(tensor.device().index());
  read_on_stream(tensor);
  if (mode_now(card) == Mode::compute || (is_knowable(tensor) && is_known(tensor))) {
    Aliases aliases(c10::DeviceType::CPU);
    return aliases.of(tensor).item();
  }
  card.note_decision();
  return as_read(tensor).item();
}

const Tensor& resize(const Tensor& tensor, IntArrayRef sizes, std::optional<MemoryFormat> format) {
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  const auto offset = static_cast<std::size_t>(tensor.storage_offset());
  const std::size_t bytes =
      at::detail::computeStorageNbytesContiguous(sizes, tensor.dtype().itemsize(), offset);
  // As on CUDA, memory never shrinks. LibTorch's own resize_ would read from it, with data or
  // without.
  if (c10::multiply_integers(sizes) > 0 && bytes > tensor.storage().nbytes())
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(tensor.storage(), bytes);
  if (tensor.sizes() != sizes) impl->set_sizes_contiguous(sizes);
  if (format && *format != MemoryFormat::Preserve) impl->empty_tensor_restride(*format);
  return tensor;
}

// torch::save sets a tensor over each storage that it writes.
Tensor& set_storage(Tensor& tensor, c10::Storage source, std::int64_t offset, IntArrayRef sizes,
                    IntArrayRef strides) {
  at::native::checkSetStorage(tensor, std::move(source), offset, sizes, strides);
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  if (strides.empty())
    impl->set_sizes_contiguous(sizes);
  else
    impl->set_sizes_and_strides(sizes, strides);
  const std::size_t bytes =
      at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.dtype().itemsize(),
                                       static_cast<std::size_t>(offset));
  if (bytes > tensor.storage().nbytes())
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(tensor.storage(), bytes);
  return tensor;
}

Tensor& set_to_nothing(Tensor& tensor) {
  return tensor.set_(c10::Storage(c10::Storage::use_byte_size_t(), 0, device_allocator(), true), 0,
                     {0}, {});
}

// The number of classes is unknown: an unknown largest class would read as zero.
Tensor one_hot(const Tensor& classes, std::int64_t count) {
  const Card& card = card_at(classes.device().index());
  if (count == -1 && !is_known(classes) && mode_now(card) != Mode::compute)
    throw libtorch::NotSimulatedError(
        expectation("sim", "the number of classes", "aten::one_hot without it on a shape-only card",
                    "one_hot(x, num_classes), or this part in compute mode"));
  return at::native::one_hot(classes, count);
}

// LibTorch's assertions (such as torch.distributions' that a scale is positive) hold for unknown
// values: zeros would fail where real values pass.
Tensor holds_where_unknown(const Tensor& mask) {
  return is_known(mask) ? mask.all() : at::ones({}, mask.options());
}

// True if `tensor.data = from` may turn one into the other, as between the CPU and CUDA. LibTorch
// decides this for the devices that it names, and asks the others. Modules move by it, and their
// parameters keep their owners, hooks and views.
bool may_become(const Tensor& tensor, const Tensor& from) {
  const auto is_plain = [](const Tensor& one) {
    using c10::BackendComponent;
    constexpr c10::DispatchKeySet kOnEither(
        {BackendComponent::CPUBit, BackendComponent::PrivateUse1Bit});
    return one.key_set().has(c10::DispatchKey::Dense) && one.key_set().has_any(kOnEither);
  };
  return (is_plain(tensor) && is_plain(from)) ||
         tensor.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

// A conjugated or negated view is copied as it is. LibTorch would first make a plain tensor of it,
// which takes a copy.
void pass_views_on_to_copies() {
  for (const auto key : {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative})
    library(key).impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace

void register_kernels(torch::Library& aten) {
  aten.impl("one_hot", &one_hot);
  library(c10::DispatchKey::AutogradPrivateUse1).impl("one_hot", &one_hot);
  aten.impl("empty.memory_format", &empty);
  aten.impl("empty_strided", &empty_strided);
  aten.impl("_efficientzerotensor", &memoryless_zeros);
  aten.impl("_copy_from", &copy_from);
  aten.impl("_to_copy", &to_copy);
  pass_views_on_to_copies();
  aten.impl("_copy_from_and_resize", &copy_from_and_resize);
  aten.impl("_is_all_true", &holds_where_unknown);
  aten.impl("_local_scalar_dense", &value_of);
  aten.impl("resize_", &resize);
  aten.impl("_has_compatible_shallow_copy_type", &may_become);
  aten.impl("set_", &set_to_nothing);
  aten.impl("set_.source_Storage", TORCH_FN(at::native::set_));
  aten.impl("set_.source_Storage_storage_offset", &set_storage);
  aten.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  aten.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  aten.impl("view", TORCH_FN(at::native::view));
  aten.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
}

}  // namespace headroom::sim::detail

#include "headroom/sim/device/alias.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Allocator.h>
#include <sys/mman.h>

#include <memory>

#include "headroom/base/error.h"
#include "headroom/libtorch/operator_refusal.h"

namespace headroom::sim::detail {
namespace {

constexpr c10::DispatchKeySet kMathBits({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});

void keep(void*) {}  // an alias owns nothing

c10::Storage alias_of(const c10::Storage& storage, c10::DeviceType as) {
  void* const data = const_cast<void*>(storage.data());
  if (as == c10::DeviceType::CPU && data == nullptr && storage.nbytes() > 0)
    throw libtorch::DeviceError(expectation(
        "sim", "tensors with data, as the card computes",
        "a tensor made while it was shape-only, of " + std::to_string(storage.nbytes()) + " bytes",
        "make the model and its inputs in compute mode"));
  return {c10::Storage::use_byte_size_t(), storage.nbytes(),
          c10::DataPtr(data, data, &keep, c10::Device(as)), c10::GetAllocator(as), true};
}

struct Pages {
  void* address;
  std::size_t bytes;
};

void unmap(void* context) {
  const std::unique_ptr<Pages> pages(static_cast<Pages*>(context));
  munmap(pages->address, pages->bytes);
}

// Zeros that take neither memory nor swap until they are written to.
c10::Storage zero_pages(const c10::Storage& storage) {
  const std::size_t bytes = storage.nbytes();
  auto pages = std::make_unique<Pages>(Pages{nullptr, bytes});
  pages->address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages->address == MAP_FAILED)
    throw UnavailableError(expectation("sim", "address space for zeros",
                                       std::to_string(bytes) + " bytes, which mmap refused",
                                       "compute mode, or an operator with a rule"));
  void* const data = pages->address;
  return {c10::Storage::use_byte_size_t(), bytes,
          c10::DataPtr(data, pages.release(), &unmap, c10::Device(c10::DeviceType::CPU)),
          c10::GetAllocator(c10::DeviceType::CPU), true};
}

c10::DispatchKey key_of(c10::DeviceType type) {
  return type == c10::DeviceType::CPU ? c10::DispatchKey::CPU : c10::DispatchKey::Meta;
}

}  // namespace

at::Tensor rewrapped(const at::Tensor& tensor, c10::Storage storage, c10::DispatchKey key) {
  const c10::DispatchKeySet keys = c10::DispatchKeySet(key) | (tensor.key_set() & kMathBits);
  at::Tensor result =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, tensor.dtype());
  c10::TensorImpl* const impl = result.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return result;
}

at::Tensor Aliases::of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return tensor;
  const bool is_host = tensor.device().is_cpu();
  // Kernels accept a CPU tensor of one number beside tensors of any device.
  const bool as_it_is =
      is_host ? as_ == c10::DeviceType::CPU || tensor.dim() == 0 : !on_card(tensor);
  if (as_it_is) return tensor;

  const c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  for (const Pair& pair : pairs_) {
    if (pair.original.unsafeGetTensorImpl() == tensor.unsafeGetTensorImpl()) return pair.alias;
    if (pair.original.storage().unsafeGetStorageImpl() == storage) {
      at::Tensor alias = rewrapped(tensor, pair.alias.storage(), key_of(as_));
      pairs_.push_back({alias, tensor});
      return alias;
    }
  }
  const bool as_zeros = tensor.storage().nbytes() > 0 &&
                        (missing_ == Missing::all_zero ||
                         (missing_ == Missing::is_zero && tensor.storage().data() == nullptr));
  at::Tensor alias =
      rewrapped(tensor, as_zeros ? zero_pages(tensor.storage()) : alias_of(tensor.storage(), as_),
                key_of(as_));
  pairs_.push_back({alias, tensor});
  return alias;
}

const at::Tensor* Aliases::argument_behind(const at::Tensor& result) const {
  for (const Pair& pair : pairs_)
    if (pair.alias.unsafeGetTensorImpl() == result.unsafeGetTensorImpl()) return &pair.original;
  return nullptr;
}

const c10::Storage* Aliases::storage_behind(const at::Tensor& result) const {
  if (!result.has_storage()) return nullptr;
  for (const Pair& pair : pairs_)
    if (pair.alias.storage().unsafeGetStorageImpl() == result.storage().unsafeGetStorageImpl())
      return &pair.original.storage();
  return nullptr;
}

Written written(const at::Tensor& argument, const at::Tensor& result) {
  if (!on_card(argument)) return {argument};
  const bool grows = result.storage().nbytes() > argument.storage().nbytes();
  if (grows)
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(argument.storage(),
                                                             result.storage().nbytes());
  if (argument.sizes() != result.sizes() || argument.strides() != result.strides())
    argument.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes(), result.strides());
  return {argument, grows};
}

}  // namespace headroom::sim::detail

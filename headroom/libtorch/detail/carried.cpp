#include "headroom/libtorch/detail/carried.h"

#include "headroom/libtorch/detail/carried_operators.h"
#include "headroom/libtorch/set_data.h"

namespace headroom::libtorch::detail {
namespace {

struct Keys final : c10::TensorImpl {
  static c10::DispatchKeySet& of(c10::TensorImpl& tensor) { return tensor.*(&Keys::key_set_); }
};

void set_key(c10::TensorImpl& tensor, bool wanted) {
  c10::DispatchKeySet& keys = Keys::of(tensor);
  keys = wanted ? keys.add(kCarriedKey) : keys.remove(kCarriedKey);
}

const Carried* as_carried(c10::BackendMeta* meta) {
  return dynamic_cast<const Carried*>(meta);
}

}  // namespace

const Carried* carried(const at::Tensor& tensor) {
  return tensor.defined() ? as_carried(tensor.unsafeGetTensorImpl()->get_backend_meta()) : nullptr;
}

Store* stored(const at::Tensor& tensor) {
  const Carried* const its = carried(tensor);
  return its == nullptr ? nullptr : its->store.get();
}

void attach(const at::Tensor& to, std::shared_ptr<const Following> following,
            std::shared_ptr<Store> store, bool transposed) {
  c10::TensorImpl& impl = *to.unsafeGetTensorImpl();
  const bool wanted = following || store;
  if (wanted) {
    register_carried_operators();
    install_set_data();
    impl.set_backend_meta(
        c10::make_intrusive<Carried>(std::move(following), std::move(store), transposed));
  } else {
    impl.set_backend_meta(nullptr);
  }
  set_key(impl, wanted);
}

SetDataScope::Plain::Plain(const at::TensorBase& its) : tensor(its) {
  if (!its.defined() || !its.key_set().has(kCarriedKey)) return;
  c10::TensorImpl& impl = *its.unsafeGetTensorImpl();
  meta = impl.get_backend_meta_intrusive_ptr();
  impl.set_backend_meta(nullptr);
  set_key(impl, false);
}

void SetDataScope::Plain::restore() {
  if (!meta) return;
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  impl.set_backend_meta(std::move(meta));
  set_key(impl, true);
}

SetDataScope::SetDataScope(const at::TensorBase& tensor, const at::TensorBase& data)
    : tensor_(tensor), data_(data) {}

SetDataScope::~SetDataScope() {
  if (tensor_.tensor.is_same(data_.tensor)) {
    tensor_.restore();
    return;
  }
  if (!tensor_.meta && !data_.meta) return;
  const bool succeeded = tensor_.tensor.unsafeGetTensorImpl()->storage().is_alias_of(
      data_.tensor.unsafeGetTensorImpl()->storage());
  const Carried* const own = as_carried(tensor_.meta.get());
  const Carried* const from = as_carried(succeeded ? data_.meta.get() : tensor_.meta.get());
  attach(at::Tensor(tensor_.tensor), own == nullptr ? nullptr : own->following,
         from == nullptr ? nullptr : from->store, from != nullptr && from->transposed);
  data_.restore();
}

}  // namespace headroom::libtorch::detail

#include "headroom/nn/detail/absent_weight.h"

#include <ATen/ATen.h>
#include <memory>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/libtorch/stored_weight.h"

namespace headroom::nn::detail {
namespace {

thread_local bool without_memory = false;

// The store of a weight that has no values yet.
class AbsentWeight final : public libtorch::Store {
 public:
  at::Tensor product(const at::Tensor&, bool, const at::Tensor&) const override { refuse(); }
  at::Tensor grouped_product(const at::Tensor&, bool, const at::Tensor&) const override {
    refuse();
  }
  at::Tensor whole(at::ScalarType) const override { refuse(); }
  void assign(const at::Tensor&) override { refuse(); }
  std::vector<at::Tensor> tensors() const override { return {}; }
  std::shared_ptr<libtorch::Store> copy(c10::Device) const override {
    return std::make_shared<AbsentWeight>();
  }

 private:
  [[noreturn]] static void refuse() {
    throw UsageError(expectation("WithoutMemoryScope", "a weight with memory",
                                 "one that was built without",
                                 "quantise() and then give_memory()"));
  }
};

}  // namespace

bool build_without_memory(bool wanted) {
  return std::exchange(without_memory, wanted);
}

at::Tensor linear_weight(at::IntArrayRef sizes) {
  if (!without_memory) return at::empty(sizes);
  at::Tensor weight = at::empty({0});
  weight.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  libtorch::keep_in(weight, std::make_shared<AbsentWeight>());
  return weight;
}

bool is_absent(const at::Tensor& weight) {
  return dynamic_cast<const AbsentWeight*>(libtorch::store_of(weight).get()) != nullptr;
}

}  // namespace headroom::nn::detail

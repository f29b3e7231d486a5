#include "headroom/sim/detail/generator.h"

#include <ATen/core/Tensor.h>

namespace headroom::sim::detail {

GeneratorImpl::GeneratorImpl(int card, std::uint64_t seed)
    : c10::GeneratorImpl(
          c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(card)),
          c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      on_cpu_(at::detail::createCPUGenerator(seed)) {}

void GeneratorImpl::set_current_seed(std::uint64_t seed) {
  on_cpu_.set_current_seed(seed);
}
void GeneratorImpl::set_offset(std::uint64_t offset) {
  on_cpu_.set_offset(offset);
}
std::uint64_t GeneratorImpl::get_offset() const {
  return on_cpu_.get_offset();
}
std::uint64_t GeneratorImpl::current_seed() const {
  return on_cpu_.current_seed();
}
std::uint64_t GeneratorImpl::seed() {
  auto generator = on_cpu_;
  return generator.seed();
}
void GeneratorImpl::set_state(const c10::TensorImpl& new_state) {
  on_cpu_.unsafeGetGeneratorImpl()->set_state(new_state);
}
c10::intrusive_ptr<c10::TensorImpl> GeneratorImpl::get_state() const {
  return on_cpu_.unsafeGetGeneratorImpl()->get_state();
}

GeneratorImpl* GeneratorImpl::clone_impl() const {
  auto* copy = new GeneratorImpl(device().index());
  copy->on_cpu_ = on_cpu_.clone();
  return copy;
}

at::Generator make_generator(int card) {
  return at::make_generator<GeneratorImpl>(card);
}

const at::Generator& on_cpu(const at::Generator& generator) {
  return static_cast<const GeneratorImpl*>(generator.unsafeGetGeneratorImpl())->on_cpu();
}

}  // namespace headroom::sim::detail

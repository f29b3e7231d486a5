#include "headroom/sim/device/generator.h"

#include <ATen/core/Tensor.h>

#include <mutex>

#include "headroom/libtorch/operator_refusal.h"

namespace headroom::sim::detail {

GeneratorImpl::GeneratorImpl(int card, std::uint64_t seed)
    : c10::GeneratorImpl(
          c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(card)),
          c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      on_cpu_(at::detail::createCPUGenerator(seed)) {}

// The CPU's kernels lock the inner generator while they draw, so seeding locks it, too.
void GeneratorImpl::set_current_seed(std::uint64_t seed) {
  const std::lock_guard lock(on_cpu_.mutex());
  on_cpu_.set_current_seed(seed);
}
std::uint64_t GeneratorImpl::current_seed() const {
  const std::lock_guard lock(on_cpu_.mutex());
  return on_cpu_.current_seed();
}
std::uint64_t GeneratorImpl::seed() {
  const std::lock_guard lock(on_cpu_.mutex());
  return on_cpu_.seed();
}
void GeneratorImpl::set_state(const c10::TensorImpl& new_state) {
  const std::lock_guard lock(on_cpu_.mutex());
  on_cpu_.unsafeGetGeneratorImpl()->set_state(new_state);
}
c10::intrusive_ptr<c10::TensorImpl> GeneratorImpl::get_state() const {
  const std::lock_guard lock(on_cpu_.mutex());
  return on_cpu_.unsafeGetGeneratorImpl()->get_state();
}

// CUDA counts the numbers drawn since the seed; the CPU's generator cannot jump to a count.
void GeneratorImpl::set_offset(std::uint64_t) {
  no_offset();
}
std::uint64_t GeneratorImpl::get_offset() const {
  no_offset();
}
void GeneratorImpl::no_offset() {
  throw libtorch::NotSimulatedError(
      "A simulated card draws the CPU's numbers, and those have no offset; use get_state() and "
      "set_state()");
}

GeneratorImpl* GeneratorImpl::clone_impl() const {
  const std::lock_guard lock(on_cpu_.mutex());
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

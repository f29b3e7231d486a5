// The random state of a simulated card. It holds a CPU generator, so that the same seed gives the
// CPU's numbers. It is as thread-safe as the CPU's: each draw locks it.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GeneratorImpl.h>

namespace headroom::sim::detail {

class GeneratorImpl final : public c10::GeneratorImpl {
 public:
  explicit GeneratorImpl(int card, std::uint64_t seed = c10::default_rng_seed_val);
  ~GeneratorImpl() override = default;

  void set_current_seed(std::uint64_t seed) override;
  void set_offset(std::uint64_t offset) override;
  std::uint64_t get_offset() const override;
  std::uint64_t current_seed() const override;
  std::uint64_t seed() override;
  void set_state(const c10::TensorImpl& new_state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  // The generator that the CPU's kernels draw from. It has the same state as this one.
  [[nodiscard]] const at::Generator& on_cpu() const { return on_cpu_; }

 private:
  GeneratorImpl* clone_impl() const override;
  [[noreturn]] static void no_offset();

  mutable at::Generator on_cpu_;
};

[[nodiscard]] at::Generator make_generator(int card);
// The CPU generator inside a simulated card's generator.
[[nodiscard]] const at::Generator& on_cpu(const at::Generator& generator);

}  // namespace headroom::sim::detail

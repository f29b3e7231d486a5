// Which of a kernel's variants for the CPU runs: each is compiled in a file of its own with the
// instructions that it may use (headroom_kernels() in headroom/kernels/CMakeLists.txt).
#pragma once

namespace headroom::kernels {

enum class Isa { plain, avx2, avx512 };

// True if this processor and this build have it.
[[nodiscard]] bool has(Isa isa);
// The best there is, or what an IsaScope says.
[[nodiscard]] Isa isa_now();

// Tests: all threads run this variant while it lives. `isa` must be there.
class IsaScope {
 public:
  explicit IsaScope(Isa isa);
  ~IsaScope();
  IsaScope(const IsaScope&) = delete;
  IsaScope& operator=(const IsaScope&) = delete;

 private:
  Isa before_;
};

}  // namespace headroom::kernels

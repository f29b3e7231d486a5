#include "headroom/libtorch/draws.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <mutex>
#include <span>

namespace headroom::libtorch {
namespace {

// FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv.
constexpr std::uint64_t kStart = 0xcbf29ce484222325;
std::uint64_t hash(std::uint64_t before, std::span<const std::uint8_t> bytes) {
  for (const std::uint8_t byte : bytes) before = (before ^ byte) * 0x100000001b3;
  return before;
}

}  // namespace

Draws::Draws(c10::Device device) {
  if (device.is_meta()) return;
  generator_ = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator_.mutex());
  const at::Tensor state = generator_.get_state();
  base_ = hash(kStart, {state.data_ptr<std::uint8_t>(), static_cast<std::size_t>(state.numel())});
}

Draws::~Draws() {
  begin("");
}

void Draws::begin(std::string_view name) {
  if (!generator_.defined()) return;
  const std::lock_guard lock(generator_.mutex());
  generator_.set_current_seed(
      hash(base_, {reinterpret_cast<const std::uint8_t*>(name.data()), name.size()}));
}

}  // namespace headroom::libtorch

#include "headroom/weights/detail/safetensors_bytes.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

namespace headroom::weights::detail {
namespace {

using at::Tensor;

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::int64_t kPiece = std::int64_t{1} << 20;  // numbers

// Wraps host memory as a tensor on the host, also inside libtorch::on.
Tensor over(void* memory, std::int64_t count, at::ScalarType type) {
  return at::from_blob(memory, {count}, at::TensorOptions(type));
}

// Calls `take` with the numbers in pieces on the host, `most` at a time.
void for_pieces(std::string_view bytes, at::ScalarType from, std::int64_t most,
                const TakeBytes& done, const std::function<void(const Tensor&)>& take) {
  // A stored bool may be any byte; a bool of C++ may not.
  if (from == at::kBool) from = at::kByte;
  const auto size = static_cast<std::int64_t>(c10::elementSize(from));
  const std::int64_t all = static_cast<std::int64_t>(bytes.size()) / size;
  std::vector<char> piece;  // aligned for every type, unlike positions in a file
  for (std::int64_t begin = 0; begin < all; begin += most) {
    const std::int64_t count = std::min(most, all - begin);
    piece.resize(static_cast<std::size_t>(count * size));
    const char* stored = bytes.data() + begin * size;
    std::memcpy(piece.data(), stored, piece.size());
    take(over(piece.data(), count, from));
    done({stored, piece.size()});
  }
}

}  // namespace

void copy_in(std::string_view bytes, at::ScalarType from, const Tensor& to, const TakeBytes& done) {
  const at::NoGradGuard no_grad;
  if (!to.is_contiguous()) {  // channels last
    const Tensor rows = at::empty(to.sizes(), to.options().requires_grad(false));
    copy_in(bytes, from, rows, done);
    to.detach().copy_(rows);
    return;
  }
  const Tensor flat = to.detach().view(-1);
  std::int64_t next = 0;
  for_pieces(bytes, from, kPiece, done, [&](const Tensor& piece) {
    flat.narrow(0, std::exchange(next, next + piece.numel()), piece.numel()).copy_(piece);
  });
}

void in_pieces(std::string_view bytes, at::ScalarType from, const at::TensorOptions& as,
               std::int64_t unit, const std::function<void(const Tensor&)>& take,
               const TakeBytes& done) {
  const at::NoGradGuard no_grad;
  const std::int64_t most = std::max(unit, kPiece / unit * unit);
  Tensor there;
  for_pieces(bytes, from, most, done, [&](const Tensor& piece) {
    if (!there.defined()) there = at::empty({piece.numel()}, as);  // the first is the largest
    const Tensor part = there.narrow(0, 0, piece.numel());
    part.copy_(piece);
    take(part);
  });
}

void copy_out(const Tensor& from, const TakeBytes& write) {
  const at::NoGradGuard no_grad;
  const Tensor flat = from.detach().contiguous().view(-1);
  std::vector<char> piece;
  for (std::int64_t begin = 0; begin < flat.numel(); begin += kPiece) {
    const std::int64_t count = std::min(kPiece, flat.numel() - begin);
    piece.resize(static_cast<std::size_t>(count) * flat.element_size());
    over(piece.data(), count, flat.scalar_type()).copy_(flat.narrow(0, begin, count));
    write({piece.data(), piece.size()});
  }
}

}  // namespace headroom::weights::detail

// Layouts of cuFFT's callers: the transformed dimensions lie innermost, in the order of their
// transformation, the others around them in the order of the input's strides. cuFFT's workspace
// depends on its version and is not counted. Source: aten/src/ATen/native/cuda/SpectralOps.cpp,
// _exec_fft, _fft_r2c_cufft, _fft_c2r_cufft, _fft_c2c_cufft.
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <numeric>

#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/results.h"

namespace headroom::sim::rules {
namespace {

constexpr std::size_t kMostAtOnce = 3;  // the most dimensions of one cuFFT transform

// A transform of two or three dimensions in total takes one call if the real side is last. Source:
// the same file, use_optimized_cufft_path.
bool in_one_call(IntArrayRef dims) {
  return dims.size() <= kMostAtOnce && (dims.size() < 2 || !(dims.front() == 0 && dims.at(1) == 1));
}

struct Layout {
  Sizes sizes, strides;
};

Layout transformed(IntArrayRef strides, Sizes sizes, IntArrayRef dims) {
  Sizes order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  const auto is_batch = [&](std::int64_t dim) {
    return std::find(dims.begin(), dims.end(), dim) == dims.end();
  };
  const auto batch_end = std::partition(order.begin(), order.end(), is_batch);
  std::sort(order.begin(), batch_end, [&](std::int64_t a, std::int64_t b) {
    return strides[static_cast<std::size_t>(a)] > strides[static_cast<std::size_t>(b)];
  });
  std::copy(dims.begin(), dims.end(), batch_end);
  Sizes made(sizes.size());
  std::int64_t stride = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    made[static_cast<std::size_t>(*dim)] = stride;
    stride *= std::max(sizes[static_cast<std::size_t>(*dim)], std::int64_t{1});
  }
  return {std::move(sizes), std::move(made)};
}

Tensor of(const Layout& layout, const Tensor& like, ScalarType type) {
  return at::empty_strided(layout.sizes, layout.strides, like.options().dtype(type));
}

Sizes sorted_by_stride(const Tensor& x, IntArrayRef dims) {
  Sizes sorted = dims.vec();
  std::sort(sorted.begin(), sorted.end(),
            [&](std::int64_t a, std::int64_t b) { return x.stride(a) > x.stride(b); });
  return sorted;
}

// Transforms at most three dimensions at a time; two buffers alternate from step to step.
Tensor complex_steps(Tensor from, Sizes dims) {
  Tensor spare;
  while (!dims.empty()) {
    dims = sorted_by_stride(from, dims);
    const std::size_t count = std::min(kMostAtOnce, dims.size());
    const Sizes last(dims.end() - static_cast<std::ptrdiff_t>(count), dims.end());
    Tensor next =
        of(transformed(from.strides(), from.sizes().vec(), last), from, from.scalar_type());
    dims.resize(dims.size() - count);
    spare = std::exchange(from, next);
  }
  return from;
}

Tensor to_complex(const Tensor& x, IntArrayRef dims, std::int64_t, bool onesided) {
  const ScalarType type = c10::toComplexType(x.scalar_type());
  const auto last = dims.back();
  Sizes half = x.sizes().vec();
  half[static_cast<std::size_t>(last)] = half[static_cast<std::size_t>(last)] / 2 + 1;
  Tensor out =
      of(transformed(x.strides(), half, in_one_call(dims) ? dims : IntArrayRef(last)), x, type);
  if (!in_one_call(dims)) out = complex_steps(out, Sizes(dims.begin(), dims.end() - 1));
  if (onesided) return out;
  return dims.size() > 1 && !in_one_call(dims)
             ? contiguous(x.sizes(), x, type)
             : of(transformed(x.strides(), x.sizes().vec(),
                              in_one_call(dims) ? dims : IntArrayRef(last)),
                  x, type);
}

Tensor complex_to_complex(const Tensor& x, IntArrayRef dims, std::int64_t, bool) {
  if (dims.empty()) return contiguous(x);
  return complex_steps(x, dims.vec());
}

// The transform to real destroys its input, so it gets a copy.
Tensor to_real(const Tensor& x, IntArrayRef dims, std::int64_t, std::int64_t last_size) {
  const auto last = dims.back();
  Sizes sizes = x.sizes().vec();
  sizes[static_cast<std::size_t>(last)] = last_size;
  const ScalarType type = c10::toRealValueType(x.scalar_type());
  const bool at_once = in_one_call(dims);
  const Tensor copy = at_once || dims.size() == 1
                          ? contiguous(x)
                          : complex_steps(x, Sizes(dims.begin(), dims.end() - 1));
  return of(transformed(copy.strides(), sizes, at_once ? dims : IntArrayRef(last)), x, type);
}

}  // namespace

void add_fft(Table& table) {
  table.rule("_fft_r2c", to_complex);
  table.rule("_fft_c2c", complex_to_complex);
  table.rule("_fft_c2r", to_real);
}

}  // namespace headroom::sim::rules

#include "headroom/forecast/effort.h"

#include <algorithm>
#include <cmath>

namespace headroom::forecast {

void Effort::add_product(Arithmetic arithmetic, double operations, double bytes) {
  if (operations <= 0 || bytes <= 0) return;
  const double power = std::clamp(std::log2(operations / bytes), 0.0, kIntensities - 1.0);
  Products& products =
      products_[static_cast<std::size_t>(arithmetic)][static_cast<std::size_t>(power)];
  products.operations += operations;
  products.bytes += bytes;
  products.kernels += 1;
}

double Effort::operations() const {
  double all = 0;
  for (const auto& of_kind : products_)
    for (const Products& products : of_kind) all += products.operations;
  return all;
}

void Effort::add(const Effort& now, const Effort& then, double times) {
  for (std::size_t i = 0; i < kArithmetics; ++i)
    for (std::size_t j = 0; j < kIntensities; ++j) {
      const Products& last = now.products_[i][j];
      const Products& first = then.products_[i][j];
      Products& sum = products_[i][j];
      sum.operations += times * (last.operations - first.operations);
      sum.bytes += times * (last.bytes - first.bytes);
      sum.kernels += times * (last.kernels - first.kernels);
    }
  moved_ += times * (now.moved_ - then.moved_);
  kernels_ += times * (now.kernels_ - then.kernels_);
}

Effort& Effort::operator+=(const Effort& more) {
  add(more, {}, 1);
  return *this;
}

void Effort::repeat_since(const Effort& before, double times) {
  add(*this, before, times);
}

}  // namespace headroom::forecast

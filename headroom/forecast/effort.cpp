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
}

double Effort::operations() const {
  double all = 0;
  for (const auto& of_kind : products_)
    for (const Products& products : of_kind) all += products.operations;
  return all;
}

void Effort::repeat_since(const Effort& before, double times) {
  for (std::size_t i = 0; i < kArithmetics; ++i)
    for (std::size_t j = 0; j < kIntensities; ++j) {
      Products& now = products_[i][j];
      const Products& then = before.products_[i][j];
      now.operations += times * (now.operations - then.operations);
      now.bytes += times * (now.bytes - then.bytes);
    }
  moved_ += times * (moved_ - before.moved_);
}

}  // namespace headroom::forecast

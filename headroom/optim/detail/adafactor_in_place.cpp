#include "headroom/optim/detail/adafactor_in_place.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "headroom/base/error.h"
#include "headroom/optim/detail/multiply.h"

namespace headroom::optim::detail {
namespace {

using at::Tensor;

constexpr std::int64_t kAtOnce = 1024;

at::ScalarType wide(at::ScalarType type) {
  return at::isReducedFloatingType(type) ? at::kFloat : type;
}

// The beginning of flat memory, in this shape.
Tensor part_of(const Tensor& memory, at::IntArrayRef sizes) {
  return memory.narrow(0, 0, c10::multiply_integers(sizes)).view(sizes);
}

// The numbers of `x` in float: `x` itself, or a copy of it in `memory`.
Tensor widened(const Tensor& x, const Tensor& memory) {
  return at::isReducedFloatingType(x.scalar_type()) ? part_of(memory, x.sizes()).copy_(x) : x;
}

std::vector<std::int64_t> with_one(at::IntArrayRef sizes, std::int64_t from_end) {
  std::vector<std::int64_t> all = sizes.vec();
  all[all.size() - static_cast<std::size_t>(from_end)] = 1;
  return all;
}

// The norm of flat `x`: of parts, then of their norms.
void norm_into(Tensor& result, Tensor x, Tensor memory) {
  while (x.numel() > kAtOnce) {
    const std::int64_t whole = x.numel() / kAtOnce, rest = x.numel() % kAtOnce;
    const std::int64_t parts = whole + (rest > 0 ? 1 : 0);
    Tensor of_whole = memory.narrow(0, 0, whole);
    at::linalg_vector_norm_out(of_whole, x.narrow(0, 0, whole * kAtOnce).view({whole, kAtOnce}), 2,
                               at::IntArrayRef(1));
    if (rest > 0) {
      Tensor of_rest = memory.narrow(0, whole, 1);
      at::linalg_vector_norm_out(of_rest, x.narrow(0, whole * kAtOnce, rest).view({1, rest}), 2,
                                 at::IntArrayRef(1));
    }
    x = memory.narrow(0, 0, parts);
    memory = memory.narrow(0, parts, memory.numel() - parts);
  }
  at::linalg_vector_norm_out(result, x, 2, at::IntArrayRef(0));
}

std::int64_t numbers_for_norm(std::int64_t count) {
  std::int64_t all = 0;
  for (; count > kAtOnce; all += count) count = (count + kAtOnce - 1) / kAtOnce;
  return all;
}

void mean_square_into(const Tensor& result, const Tensor& x, std::int64_t dim, Tensor part) {
  result.zero_();
  for (std::int64_t start = 0; start < x.size(dim); start += kAtOnce) {
    const Tensor some = x.narrow(dim, start, std::min(kAtOnce, x.size(dim) - start));
    at::linalg_vector_norm_out(part, some, 2, at::IntArrayRef(dim), true);
    result.addcmul_(part, part);
  }
  result.div_(x.size(dim));
}

void mean_into(const Tensor& result, const Tensor& x, std::int64_t dim, Tensor part) {
  result.zero_();
  for (std::int64_t start = 0; start < x.size(dim); start += kAtOnce) {
    const Tensor some = x.narrow(dim, start, std::min(kAtOnce, x.size(dim) - start));
    at::sum_out(part, some, at::IntArrayRef(dim), true);
    result.add_(part);
  }
  result.div_(x.size(dim));
}

// Mixes new values into a running mean, and returns it in float.
Tensor mixed(const Tensor& kept, const Tensor& values, double share, const Tensor& memory) {
  const Tensor mean = widened(kept, memory);
  mean.lerp_(values, share);
  if (at::isReducedFloatingType(kept.scalar_type())) kept.copy_(mean);
  return mean;
}

}  // namespace

struct AdafactorInPlace::Need {
  std::int64_t largest = 1, rows = 1, columns = 1, means = 1;

  void add(const Tensor& parameter) {
    const at::IntArrayRef sizes = parameter.sizes();
    largest = std::max(largest, parameter.numel());
    if (parameter.dim() < 2) {
      rows = std::max(rows, parameter.numel());
      return;
    }
    const auto row = with_one(sizes, 1), column = with_one(sizes, 2), mean = with_one(row, 2);
    rows = std::max(rows, c10::multiply_integers(row));
    columns = std::max(columns, c10::multiply_integers(column));
    means = std::max(means, c10::multiply_integers(mean));
  }
};

AdafactorInPlace::AdafactorInPlace(const std::vector<Tensor>& parameters) {
  struct Wanted {
    at::TensorOptions type;
    bool narrow = false;
    Need need;
  };
  std::vector<Wanted> all;
  for (const Tensor& parameter : parameters) {
    const at::TensorOptions type =
        at::TensorOptions(parameter.device()).dtype(wide(parameter.scalar_type()));
    const auto is_here = [&](const Wanted& one) {
      return one.type.device() == type.device() && one.type.dtype() == type.dtype();
    };
    auto found = std::find_if(all.begin(), all.end(), is_here);
    if (found == all.end()) found = all.insert(all.end(), {type});
    found->narrow = found->narrow || at::isReducedFloatingType(parameter.scalar_type());
    found->need.add(parameter);
  }
  for (const auto& [type, narrow, need] : all) {
    const auto memory = [type = type](std::int64_t numbers) { return at::empty(numbers, type); };
    Place place;
    place.update = memory(need.largest);
    if (narrow) {
      place.gradient = memory(need.largest);
      place.rows = memory(need.rows);
      place.columns = memory(need.columns);
    }
    place.line = memory(std::max(need.rows, need.columns));
    place.part = memory(std::max(need.rows, need.columns));
    place.means = memory(need.means);
    place.norms = memory(numbers_for_norm(need.largest));
    place.size = at::empty({}, type);
    place.damping = at::empty({}, type);
    places_.push_back(std::move(place));
  }
}

AdafactorInPlace::Place& AdafactorInPlace::place_for(const Tensor& parameter) {
  for (Place& place : places_)
    if (place.size.device() == parameter.device() &&
        place.size.scalar_type() == wide(parameter.scalar_type()) &&
        place.update.numel() >= parameter.numel())
      return place;
  throw InternalError(expectation("Adafactor", "memory reserved for a parameter", "none"));
}

void AdafactorInPlace::update(const Tensor& parameter, const Tensor& gradient_as_it_is,
                              State& state, const AdafactorOptions& options, double epsilon) {
  const double step = state.at("step").add_(1).item<double>();  // on the host
  if (parameter.numel() == 0) return;
  Place& place = place_for(parameter);
  const double share = std::pow(step, options.beta2_decay);
  const double rate = std::min(options.learning_rate, 1 / std::sqrt(step));
  const double root_of_count = std::sqrt(static_cast<double>(parameter.numel()));
  const Tensor update = part_of(place.update, parameter.sizes());
  update.copy_(parameter);
  norm_into(place.size, update.view(-1), place.norms);
  place.size.div_(root_of_count).clamp_min_(options.epsilon2).mul_(rate);
  if (options.weight_decay != 0)
    multiply_(parameter, 1 - options.learning_rate * options.weight_decay);
  const Tensor gradient = widened(gradient_as_it_is, place.gradient);
  if (gradient.dim() > 1) {
    const auto mix = [&](const char* name, std::int64_t dim, const Tensor& memory) {
      const Tensor& kept = state.at(name);
      const Tensor squares = part_of(place.line, kept.sizes());
      mean_square_into(squares, gradient, dim, part_of(place.part, kept.sizes()));
      return mixed(kept, squares, share, memory);
    };
    const Tensor rows = mix("row_var", -1, place.rows);
    const Tensor columns = mix("col_var", -2, place.columns);
    Tensor product = update;
    at::mul_out(product, rows, columns);
    const auto one = with_one(rows.sizes(), 2);
    const Tensor means = part_of(place.means, one);
    mean_into(means, rows, -2, part_of(place.part, one));
    update.div_(means.clamp_min_(epsilon));
  } else {
    Tensor squares = update;
    at::mul_out(squares, gradient, gradient);
    update.copy_(mixed(state.at("variance"), squares, share, place.rows));
  }
  update.clamp_min_(epsilon * epsilon).rsqrt_().mul_(gradient);
  norm_into(place.damping, update.view(-1), place.norms);
  place.damping.div_(root_of_count * options.clip).clamp_min_(1);
  update.mul_(place.size.div_(place.damping).neg_());
  const Tensor moved = widened(parameter, place.gradient).add_(update);
  if (at::isReducedFloatingType(parameter.scalar_type())) parameter.copy_(moved);
}

}  // namespace headroom::optim::detail

// Matrix decompositions and solvers. Matrices for LAPACK and cuSOLVER lie column by column.
#include <c10/core/ScalarType.h>

#include <cctype>

#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/results.h"

namespace headroom::sim::rules {
namespace {

Tensor columns(IntArrayRef sizes, const Tensor& like, OptionalType type = {}) {
  Sizes transposed = sizes.vec();
  std::swap(transposed.end()[-1], transposed.end()[-2]);
  return contiguous(transposed, like, type).mT();
}

IntArrayRef batch_of(const Tensor& x) {
  return x.sizes().slice(0, x.sizes().size() - 2);
}

Sizes in_batch(const Tensor& x, std::initializer_list<std::int64_t> last) {
  Sizes sizes = batch_of(x).vec();
  sizes.insert(sizes.end(), last);
  return sizes;
}

Tensor whole_numbers(const Tensor& x) {
  return contiguous(batch_of(x), x, at::kInt);
}

std::int64_t smaller_side(const Tensor& x) {
  return std::min(x.size(-1), x.size(-2));
}

void add_cholesky(Table& table) {
  for (const char* name : {"cholesky", "cholesky_inverse"})
    table.rule(name, [](const Tensor& x, bool) {
      Tensor result = columns(x.sizes(), x);
      const Tensor info = whole_numbers(x);
      return result;
    });
  table.rule("cholesky.out",
             [](const Tensor& x, bool, const Tensor& out) { return out.resize_(x.sizes()); });
  table.rule("_cholesky_solve_helper", [](const Tensor& b, const Tensor& a, bool) {
    Tensor solution = columns(b.sizes(), b);
    const Tensor factor = columns(a.sizes(), a);
    const Tensor info = whole_numbers(a);
    return solution;
  });
}

void add_orthogonal(Table& table) {
  table.rule("geqrf", [](const Tensor& x) {
    return std::tuple(columns(x.sizes(), x), contiguous(in_batch(x, {smaller_side(x)}), x));
  });
  table.rule("linalg_householder_product",
             [](const Tensor& x, const Tensor&) { return columns(x.sizes(), x); });
  table.rule("ormqr", [](const Tensor&, const Tensor&, const Tensor& other, bool, bool) {
    return columns(other.sizes(), other);
  });
}

void add_eigenvalues(Table& table) {
  table.rule("linalg_eig", [](const Tensor& x) {
    const ScalarType type = c10::toComplexType(x.scalar_type());
    return std::tuple(contiguous(in_batch(x, {x.size(-1)}), x, type), columns(x.sizes(), x, type));
  });
  table.rule("_linalg_eigvals", [](const Tensor& x) {
    return contiguous(in_batch(x, {x.size(-1)}), x, c10::toComplexType(x.scalar_type()));
  });
  table.rule("linalg_eigvals.out", [](const Tensor& x, const Tensor& out) {
    return out.resize_(in_batch(x, {x.size(-1)}));
  });
  table.contiguous_as(0, {"linalg_matrix_exp", "linalg_matrix_sqrth"});
  table.rule("_compute_linear_combination", [](const Tensor& x, const Tensor& coefficients) {
    Sizes sizes = x.sizes().vec();
    sizes[0] = coefficients.size(0);
    return contiguous(sizes, x);
  });
}

// CUDA has one driver, gels, which does not compute the rank; the CPU's default is gelsy, which
// gives no residuals. The solution's memory has room for the longer side of the matrix, where the
// residuals were.
// Source: aten/src/ATen/native/BatchLinearAlgebra.cpp, linalg_lstsq_out_info,
// get_default_lstsq_driver; what 2.11.0 gives on the CPU, where the code is the same.
using Driver = std::optional<std::string_view>;

std::string driver_of(const Driver& given) {
  std::string driver(given.value_or(follows_cuda() ? "gels" : "gelsy"));
  for (char& letter : driver) letter = static_cast<char>(std::tolower(letter));
  TORCH_CHECK(!follows_cuda() || driver == "gels",
              "torch.linalg.lstsq: parameter `driver` should be one of (gels)");
  return driver;
}

bool is_vector(const Tensor& a, const Tensor& b) {
  return b.dim() == 1 ||
         (a.dim() - 1 == b.dim() && b.sizes() == a.sizes().slice(0, b.sizes().size()));
}

auto least_squares(const Tensor& a, const Tensor& b, std::optional<double>, Driver given) {
  const std::string driver = driver_of(given);
  const bool vector = is_vector(a, b), ranked = driver != "gels";
  const std::int64_t rows = a.size(-2), unknowns = a.size(-1), wanted = vector ? 1 : b.size(-1);
  const ScalarType real = c10::toRealValueType(a.scalar_type());
  const Tensor info = whole_numbers(a);
  Tensor solution = columns(in_batch(a, {std::max(rows, unknowns), wanted}), b);
  Tensor rank = ranked ? contiguous(batch_of(a), a, at::kLong) : contiguous({0}, a, at::kLong);
  const bool by_values = driver == "gelss" || driver == "gelsd";
  Tensor values = contiguous(by_values ? in_batch(a, {smaller_side(a)}) : Sizes{0}, a, real);
  const Tensor worked_on = columns(a.sizes(), a);
  const bool left_over = rows > unknowns && driver != "gelsy";
  Tensor residuals = contiguous(left_over ? in_batch(a, {wanted}) : Sizes{0}, a, real);
  solution = solution.narrow(-2, 0, unknowns);
  return std::tuple(vector ? solution.squeeze(-1) : solution, residuals, rank, values);
}

void add_solvers(Table& table) {
  table.rule("linalg_solve_triangular", [](const Tensor& a, const Tensor& b, bool, bool, bool) {
    Sizes sizes = at::infer_size(batch_of(a), batch_of(b));
    sizes.insert(sizes.end(), b.sizes().end() - 2, b.sizes().end());
    return columns(sizes, b);
  });
  table.rule("linalg_lstsq", least_squares);
  table.fill("linalg_lstsq",
             [](const Tensor& a, const Tensor& b, std::optional<double> rcond, Driver driver) {
               return at::linalg_lstsq(a, b, rcond, driver_of(driver));
             });
}

}  // namespace

void add_matrix_decompositions(Table& table) {
  add_cholesky(table);
  add_orthogonal(table);
  add_eigenvalues(table);
  add_solvers(table);
}

}  // namespace headroom::sim::rules

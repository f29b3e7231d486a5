#include "headroom/forecast/operator_time.h"

#include <algorithm>
#include <array>

#include "headroom/forecast/step_time.h"

namespace headroom::forecast {
namespace {

double elements(const Shape& shape) {
  double product = 1;
  for (const std::int64_t side : shape) product *= static_cast<double>(side);
  return product;
}

const Shape& input(const OperatorWork& work, std::size_t number) {
  static const Shape none;
  return number < work.inputs.size() ? work.inputs[number] : none;
}

double side(const Shape& shape, std::size_t from_end) {
  return shape.size() < from_end ? 1 : static_cast<double>(shape[shape.size() - from_end]);
}

// The first matrix of a product, by operator: [rows, inner].
constexpr std::array<std::pair<std::string_view, std::size_t>, 9> kProducts{{{"aten::mm", 0},
                                                                             {"aten::bmm", 0},
                                                                             {"aten::mv", 0},
                                                                             {"aten::dot", 0},
                                                                             {"aten::_int_mm", 0},
                                                                             {"aten::addmm", 1},
                                                                             {"aten::addmv", 1},
                                                                             {"aten::baddbmm", 1},
                                                                             {"aten::linear", 0}}};

bool is_convolution(std::string_view name) {
  return name.find("convolution") != std::string_view::npos;
}
bool is_backward(std::string_view name) {
  return name.find("backward") != std::string_view::npos;
}

// Each element of the output, or of its gradient, takes a product over the weight of its channel.
// Backward makes two such products: of the input's gradient, and of the weight's.
double convolution_operations(const OperatorWork& work) {
  const Shape& weight = input(work, is_backward(work.name) ? 2 : 1);
  if (weight.empty() || weight[0] == 0) return 0;
  const double each = elements(weight) / static_cast<double>(weight[0]);
  return is_backward(work.name) ? 2 * 2 * elements(input(work, 0)) * each
                                : 2 * elements(work.output) * each;
}

// Two products forward; five backward, which makes the scores again.
double attention_operations(const OperatorWork& work) {
  const std::size_t query = is_backward(work.name) ? 1 : 0;
  const double keys = side(input(work, query + 1), 2);
  return (is_backward(work.name) ? 5 : 2) * 2 * elements(input(work, query)) * keys;
}

}  // namespace

double product_operations(const OperatorWork& work) {
  const auto* const product =
      std::find_if(kProducts.begin(), kProducts.end(),
                   [&](const auto& known) { return known.first == work.name; });
  if (product != kProducts.end())
    return 2 * elements(work.output) * side(input(work, product->second), 1);
  if (is_convolution(work.name)) return convolution_operations(work);
  if (work.name.find("_scaled_dot_product_") != std::string_view::npos)
    return attention_operations(work);
  return 0;
}

double operator_seconds(const OperatorWork& work, const gpu::CatalogueCard* card) {
  Effort effort;
  const double operations = product_operations(work);
  if (operations > 0)
    effort.add_product(work.arithmetic, operations, work.bytes);
  else
    effort.add_read(work.bytes);
  return effort_seconds(effort, card);
}

}  // namespace headroom::forecast

#include <cctype>

#include "case.h"

namespace headroom::coverage {
namespace {

Cases gathered() {
  Cases all;
  for (auto* const table : {activation_cases, container_cases, convolution_cases, embedding_cases,
                            functional_activation_cases, functional_cases, functional_image_cases,
                            functional_loss_cases, linear_cases, loss_cases, mixed_precision_cases,
                            normalisation_cases, operator_cases, optimizer_cases, padding_cases,
                            pooling_cases, recurrent_cases, transformer_cases, utility_cases})
    for (Case& one : table()) all.push_back(std::move(one));
  add_limits(all);
  return all;
}

}  // namespace

const Cases& all_cases() {
  static const Cases cases = gathered();
  return cases;
}

std::string identifier(const Case& one) {
  std::string name;
  const std::string text = one.variant.empty() ? one.covers : one.covers + " " + one.variant;
  for (const char c : text) {
    const bool fits = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (fits || (!name.empty() && name.back() != '_')) name += fits ? c : '_';
  }
  while (!name.empty() && name.back() == '_') name.pop_back();
  return name;
}

}  // namespace headroom::coverage

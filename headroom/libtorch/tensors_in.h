// The tensors in an operator's argument or result: the value itself, or the elements of a list. For
// .cpp files: it includes ATen's ivalue.h.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <utility>
#include <vector>

namespace headroom::libtorch {

// Calls `visit` for every tensor in a value and replaces the tensor by its result.
template <typename Visit>
void replace_tensors(c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    value = visit(value.toTensor());
  } else if (value.isTensorList()) {
    std::vector<at::Tensor> tensors = value.toTensorVector();
    for (at::Tensor& tensor : tensors) tensor = visit(tensor);
    value = std::move(tensors);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> tensors;
    for (const auto& tensor : value.toOptionalTensorVector())
      tensors.push_back(tensor ? std::optional<at::Tensor>(visit(*tensor)) : std::nullopt);
    value = std::move(tensors);
  }
}

template <typename Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const auto& tensor : value.toOptionalTensorVector())
      if (tensor) visit(*tensor);
  }
}

}  // namespace headroom::libtorch

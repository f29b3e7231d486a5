#include "headroom/profile/detail/operator_work.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>

#include <algorithm>

#include "headroom/libtorch/tensors_in.h"

namespace headroom::profile::detail {
namespace {

double bytes_on_card(const c10::IValue& value) {
  double bytes = 0;
  libtorch::for_each_tensor(value, [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.device().type() == c10::DeviceType::PrivateUse1)
      bytes += static_cast<double>(tensor.numel()) * static_cast<double>(tensor.itemsize());
  });
  return bytes;
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

OperatorFacts facts_from(const c10::FunctionSchema& schema) {
  OperatorFacts facts;
  for (const c10::Argument& argument : schema.arguments())
    facts.written.push_back(is_written(argument));
  for (const c10::Argument& result : schema.returns())
    facts.fresh.push_back(result.alias_info() == nullptr);
  const auto any = [](const std::vector<bool>& values, bool value) {
    return std::find(values.begin(), values.end(), value) != values.end();
  };
  facts.gives_views = any(facts.fresh, false) && !any(facts.written, true);
  return facts;
}

// These read only the rows of the table that they return, not the whole table.
bool reads_rows_only(std::string_view name) {
  return name == "aten::embedding" || name == "aten::index_select" || name == "aten::gather" ||
         name == "aten::index";
}

forecast::Arithmetic arithmetic_of(const at::Tensor& tensor, std::string_view name) {
  switch (tensor.scalar_type()) {
    case at::kBFloat16:
      return forecast::Arithmetic::bfloat16;
    case at::kHalf:
      return forecast::Arithmetic::float16;
    default:  // cuDNN uses TF32 by default, cuBLAS does not
      return name.find("convolution") != std::string_view::npos ? forecast::Arithmetic::tf32
                                                                : forecast::Arithmetic::float32;
  }
}

}  // namespace

const OperatorFacts* KnownOperators::facts_of(const at::RecordFunction& call) {
  if (call.scope() != at::RecordScope::FUNCTION) return nullptr;
  const auto name = call.operator_name();
  if (!name) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = known_.try_emplace(name->name + "." + name->overload_name);
  if (is_new)
    if (const auto schema = call.operator_schema()) found->second = facts_from(*schema);
  return &found->second;
}

CallWork::CallWork(const at::RecordFunction& call, const OperatorFacts& facts) : facts_(&facts) {
  work_.name = call.name();
  const auto inputs = call.inputs();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const double bytes = bytes_on_card(inputs[i]);
    if (i == 0) first_bytes_ = bytes;
    work_.bytes += bytes;
    if (i < facts.written.size() && facts.written[i]) work_.bytes += bytes;
    const bool is_tensor = inputs[i].isTensor() && inputs[i].toTensor().defined();
    work_.inputs.push_back(is_tensor ? inputs[i].toTensor().sizes().vec() : forecast::Shape());
    if (is_tensor && i <= 1) work_.arithmetic = arithmetic_of(inputs[i].toTensor(), work_.name);
  }
}

forecast::OperatorWork CallWork::finished(const at::RecordFunction& call) && {
  if (facts_ == nullptr || facts_->gives_views ||
      work_.name.find("empty") != std::string_view::npos)
    return {};
  const auto& outputs = call.outputs();
  double given = 0;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (i >= facts_->fresh.size() || facts_->fresh[i]) given += bytes_on_card(outputs[i]);
    if (work_.output.empty() && outputs[i].isTensor() && outputs[i].toTensor().defined())
      work_.output = outputs[i].toTensor().sizes().vec();
  }
  work_.bytes += given;
  if (reads_rows_only(work_.name)) work_.bytes += given - first_bytes_;
  return std::move(work_);
}

}  // namespace headroom::profile::detail

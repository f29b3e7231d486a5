#include "operator_case.h"

#include <ATen/ATen.h>

#include <fstream>
#include <sstream>
#include <stdexcept>

#include "headroom/sim/dispatch/derived.h"
#include "operator_word.h"

namespace headroom::sim::testing {

bool is_out(const c10::Argument& argument) {
  return argument.kwarg_only() && argument.alias_info() != nullptr &&
         argument.alias_info()->isWrite();
}

namespace {

using at::Tensor;
using c10::IValue;
using c10::ScalarType;

IValue outs_of(const c10::Argument& argument, const std::vector<ScalarType>& types,
               std::size_t& next) {
  if (argument.type()->str() == "Tensor")
    return at::empty({0}, next < types.size() ? types[next++] : at::kFloat);
  std::vector<Tensor> tensors;
  while (next < types.size()) tensors.push_back(at::empty({0}, types[next++]));
  return tensors;
}

// Tensors and numbers only: some of the others' CPU kernels trust their caller.
bool takes_any_tensors(const c10::FunctionSchema& schema) {
  for (const c10::Argument& argument : schema.arguments()) {
    const std::string type = argument.type()->str();
    if (is_out(argument) || argument.default_value()) continue;
    if (type != "Tensor" && type != "Tensor[]" && type.find("Scalar") != 0 && type != "int" &&
        type != "SymInt" && type != "float" && type != "float[]")
      return false;
  }
  return true;
}

std::string usual_word(const c10::Argument& argument, const std::string& shape) {
  const std::string type = argument.type()->str();
  const std::string& name = argument.name();
  if (type == "Tensor" || type == "Optional[Tensor]" || type == "Tensor?") return "x" + shape;
  if (type.find("Tensor") != std::string::npos) return "[x" + shape + ",x" + shape + "]";
  if (name == "dtype") return ":float";
  if (type == "bool") return "False";
  if (type == "str") return "'sum'";
  if (type == "float") return "0.5";
  if (type == "Scalar" || type == "number") return "2";
  if (type == "int" || type == "SymInt") return "1";
  if (type.find("[]") != std::string::npos && type.find("Optional") != 0)
    return type.find("int") != std::string::npos || type.find("Int") != std::string::npos ? "[1]"
                                                                                          : "[2,3]";
  return "None";
}

std::vector<Tensor> tensors_in(const IValue& value) {
  if (value.isTensor()) return {value.toTensor()};
  if (value.isTensorList()) return value.toTensorVector();
  std::vector<Tensor> tensors;
  if (value.isOptionalTensorList())
    for (const auto& tensor : value.toOptionalTensorVector())
      tensors.push_back(tensor.value_or(Tensor()));
  return tensors;
}

Tensor onto_card(const Tensor& tensor, c10::Device device) {
  if (!tensor.defined()) return tensor;
  const auto elements =
      static_cast<std::int64_t>(tensor.storage().nbytes() / tensor.element_size());
  const Tensor whole = tensor.as_strided({elements}, {1}, 0).to(device);
  return whole.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
}

}  // namespace

std::string Variant::str() const {
  static const std::map<Layout, std::string> names{{Layout::contiguous, "contiguous"},
                                                   {Layout::turned, "turned"},
                                                   {Layout::with_gaps, "with gaps"},
                                                   {Layout::channels_last, "channels last"}};
  return std::string(c10::toString(type)) + ", " + names.at(layout);
}

OperatorCases read_operator_cases(const std::string& file) {
  std::ifstream input(file);
  if (!input) throw std::runtime_error("cannot read " + file);
  OperatorCases cases;
  std::string line;
  while (std::getline(input, line)) {
    std::vector<std::string> words = words_of(line.substr(0, line.find('#')));
    if (words.empty()) continue;
    const std::string name = words[0];
    words.erase(words.begin());
    OperatorCase one;
    if (!words.empty() && words[0].find_first_not_of("?!^-") == std::string::npos) {
      one.marks = words[0];
      words.erase(words.begin());
    }
    one.words = std::move(words);
    cases.emplace(name, std::move(one));
  }
  return cases;
}

std::vector<OperatorCase> usual_cases(const c10::FunctionSchema& schema) {
  // The first tensor's shape, and the others'.
  static const std::vector<std::pair<std::string, std::string>> shapes{
      {"(2,3,4)", "(2,3,4)"}, {"(2,3,4)", "(3,1)"},       {"(3,1)", "(2,3,4)"}, {"(2,3,4)", "()"},
      {"(3,3)", "(3,3)"},     {"(2,3,4,5)", "(2,3,4,5)"}, {"()", "()"},         {"(0,3)", "(0,3)"}};
  std::vector<OperatorCase> cases;
  if (!takes_any_tensors(schema)) return cases;
  for (const auto& [first, rest] : shapes) {
    OperatorCase one;
    bool is_first = true;
    for (const c10::Argument& argument : schema.arguments()) {
      if (is_out(argument)) continue;
      if (argument.default_value()) {
        one.words.push_back("=");
        continue;
      }
      const std::string word = usual_word(argument, is_first ? first : rest);
      if (word[0] == 'x' || word.find("[x") == 0) is_first = false;
      one.words.push_back(word);
    }
    cases.push_back(std::move(one));
  }
  return cases;
}

std::vector<Variant> variants_of(const OperatorCase& one) {
  bool any = false, floating = false, four = false;
  for (const std::string& word : one.words)
    for (const std::string& part : word[0] == '[' ? items_of(word) : std::vector{word})
      if (is_tensor(part)) {
        any |= part[0] == 'x';
        floating |= std::string("fgpluqs").find(part[0]) != std::string::npos;
        four |= std::count(part.begin(), part.end(), ',') == 3;
      }
  std::vector<ScalarType> types{at::kFloat};
  if (any || floating)
    types = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kComplexFloat};
  if (any && !floating)
    for (const ScalarType type : {at::kLong, at::kInt, at::kByte, at::kBool}) types.push_back(type);
  using Layout = Variant::Layout;
  std::vector<Variant> variants;
  for (const ScalarType type : types)
    for (const Layout layout :
         {Layout::contiguous, Layout::turned, Layout::with_gaps, Layout::channels_last})
      if (layout != Layout::channels_last || four) variants.push_back({type, layout});
  return variants;
}

torch::jit::Stack arguments_of(const c10::FunctionSchema& schema, const OperatorCase& one,
                               const Variant& variant, const std::vector<ScalarType>& out_types) {
  at::manual_seed(11);
  torch::jit::Stack stack;
  std::size_t next_word = 0, next_type = 0;
  for (const c10::Argument& argument : schema.arguments()) {
    if (is_out(argument)) {
      stack.push_back(outs_of(argument, out_types, next_type));
      continue;
    }
    const bool given = next_word < one.words.size();
    const std::string word = given ? one.words[next_word++] : "=";
    if (word == "=" && !argument.default_value())
      throw std::runtime_error(schema.name() + ": no word for " + argument.name());
    stack.push_back(word == "=" ? *argument.default_value()
                                : value_of(word, argument.type()->str(), variant));
  }
  return stack;
}

std::optional<c10::OperatorHandle> find_operator(const std::string& name) {
  const std::size_t dot = name.find('.');
  return c10::Dispatcher::singleton().findSchema(
      {"aten::" + name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
}

std::vector<OperatorCase> cases_of(const OperatorCases& cases, const std::string& name,
                                   const c10::OperatorHandle& op) {
  std::vector<std::string> names{name};
  if (const auto functional = detail::without_out(op))
    names.push_back(c10::toString(functional->operator_name()).substr(6));
  const std::string base = name.substr(0, name.find('.'));
  const std::string overload = name.substr(base.size());
  if (base.size() > 1 && base.back() == '_')
    for (const std::string& tail : {overload, std::string()})
      names.push_back(base.substr(0, base.size() - 1) + tail);
  for (const std::string& candidate : names) {
    std::vector<OperatorCase> found;
    const auto [begin, end] = cases.equal_range(candidate);
    for (auto one = begin; one != end; ++one) found.push_back(one->second);
    if (!found.empty()) return found;
  }
  for (const auto& [pattern, one] : cases)
    if (pattern.back() == '*' && base.find(pattern.substr(0, pattern.size() - 1)) == 0)
      return {one};
  return usual_cases(op.schema());
}

std::vector<Tensor> tensors_of(const torch::jit::Stack& stack) {
  std::vector<Tensor> all;
  for (const IValue& value : stack)
    for (const Tensor& tensor : tensors_in(value)) all.push_back(tensor);
  return all;
}

torch::jit::Stack onto(const c10::FunctionSchema& schema, const torch::jit::Stack& stack,
                       c10::Device device) {
  torch::jit::Stack moved;
  for (std::size_t i = 0; i < stack.size(); ++i) {
    const IValue& value = stack[i];
    if (value.isTensor() && schema.arguments()[i].name() == "scalars") {
      moved.push_back(value);  // _foreach_: numbers that are read on the host
    } else if (value.isTensor()) {
      moved.push_back(onto_card(value.toTensor(), device));
    } else if (value.isTensorList()) {
      std::vector<Tensor> tensors;
      for (const Tensor& tensor : value.toTensorVector())
        tensors.push_back(onto_card(tensor, device));
      moved.push_back(tensors);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> tensors;
      for (const auto& tensor : value.toOptionalTensorVector())
        tensors.push_back(tensor ? std::optional(onto_card(*tensor, device)) : std::nullopt);
      moved.push_back(tensors);
    } else if (schema.arguments()[i].name() == "device") {
      moved.push_back(device);
    } else {
      moved.push_back(value);
    }
  }
  return moved;
}

}  // namespace headroom::sim::testing

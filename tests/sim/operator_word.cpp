#include "operator_word.h"

#include <ATen/ATen.h>

#include <map>

namespace headroom::sim::testing {
namespace {

using at::Tensor;
using c10::IValue;
using c10::ScalarType;

std::string within(const std::string& word) {
  return word.substr(1, word.size() - 2);
}

ScalarType type_named(const std::string& name) {
  static const std::map<std::string, ScalarType> types{
      {"float", at::kFloat}, {"double", at::kDouble},
      {"half", at::kHalf},   {"bfloat16", at::kBFloat16},
      {"int", at::kInt},     {"long", at::kLong},
      {"bool", at::kBool},   {"cfloat", at::kComplexFloat},
      {"byte", at::kByte},   {"char", at::kChar}};
  return types.at(name);
}

// "x(2,3)", "i5(4)": what it holds, below which number, its sizes.
struct TensorWord {
  char kind;
  std::int64_t below;
  std::vector<std::int64_t> sizes;

  explicit TensorWord(const std::string& word) : kind(word[0]) {
    const std::size_t open = word.find('(');
    below = open > 1 ? std::stoll(word.substr(1, open - 1)) : 2;
    for (const std::string& size : items_of(word.substr(open))) sizes.push_back(std::stoll(size));
  }
};

Tensor laid_out(const Tensor& x, Variant::Layout layout) {
  using Layout = Variant::Layout;
  if (layout == Layout::turned && x.dim() > 1)
    return x.transpose(0, -1).contiguous().transpose(0, -1);
  if (layout == Layout::channels_last && x.dim() == 4)
    return x.contiguous(at::MemoryFormat::ChannelsLast);
  if (layout == Layout::with_gaps && x.dim() > 0 && x.numel() > 0) {
    std::vector<std::int64_t> wide = x.sizes().vec();
    wide.back() *= 2;
    Tensor gaps = at::zeros(wide, x.options()).slice(-1, 0, wide.back(), 2);
    gaps.copy_(x);
    return gaps;
  }
  return x;
}

Tensor numbers(const std::vector<std::int64_t>& sizes, ScalarType type) {
  if (at::isIntegralType(type, true)) {
    const Tensor small = at::randint(1, 5, sizes, at::kLong);
    return type == at::kBool ? small.gt(2) : small.to(type);
  }
  const ScalarType drawn = at::isComplexType(type) ? at::kComplexDouble : at::kDouble;
  return at::randn(sizes, drawn).to(type);
}

Tensor positive_definite(const std::vector<std::int64_t>& sizes, ScalarType type) {
  const Tensor a = numbers(sizes, at::isComplexType(type) ? at::kComplexDouble : at::kDouble);
  return at::matmul(a, a.mH()).add_(at::eye(sizes.back(), a.options()).mul(sizes.back())).to(type);
}

Tensor tensor_of(const std::string& text, const Variant& variant) {
  const TensorWord word(text);
  const at::TensorOptions whole(at::kLong);
  switch (word.kind) {
    case 'x':
    case 'f':
      return laid_out(numbers(word.sizes, variant.type), variant.layout);
    case 'g':  // as f, without gaps
      return numbers(word.sizes, variant.type);
    case 'c':
      return laid_out(numbers(word.sizes, at::kComplexFloat), variant.layout);
    case 'p':
      return positive_definite(word.sizes, variant.type);
    case 'l':
      return positive_definite(word.sizes, variant.type).tril();
    case 'u':
      return positive_definite(word.sizes, variant.type).triu();
    case 'q':
      return at::rand(word.sizes, at::kDouble).mul_(0.8).add_(0.1).to(variant.type);
    case 's':
      return std::get<0>(at::sort(numbers(word.sizes, variant.type)));
    case 'i':
      return at::randint(0, word.below, word.sizes, whole);
    case 'j':
      return at::randint(0, word.below, word.sizes, at::kInt);
    case 'h':
      return at::randint(0, 1000, word.sizes, whole).to(at::kUInt64);
    case 'k':
      return at::randint(0, word.below, word.sizes, at::kChar);
    case 'n':  // all the same number
      return at::full(word.sizes, word.below, whole);
    case 'm':
      return at::full(word.sizes, word.below, at::kInt);
    case 'd':
      return at::full(word.sizes, static_cast<double>(word.below), at::kFloat);
    case 'b':
      return at::rand(word.sizes).gt(0.5);
    case 'o':
      return at::ones(word.sizes, at::kFloat);
    case 'z':
      return at::zeros(word.sizes, at::kFloat);
    default:
      throw std::runtime_error("no such tensor: " + text);
  }
}

c10::List<std::optional<Tensor>> optional_tensors(const std::string& word, const Variant& variant) {
  c10::List<std::optional<Tensor>> tensors;
  for (const std::string& item : items_of(word))
    tensors.push_back(item == "None" ? std::nullopt : std::optional(tensor_of(item, variant)));
  return tensors;
}

IValue list_of(const std::string& word, const std::string& type, const Variant& variant) {
  if (type == "Optional[Tensor][]" || type == "Tensor?[]") return optional_tensors(word, variant);
  std::vector<Tensor> tensors;
  std::vector<std::int64_t> numbers;
  c10::List<bool> flags;
  c10::List<double> floats;
  c10::List<at::Scalar> scalars;
  for (const std::string& item : items_of(word)) {
    if (is_tensor(item))
      tensors.push_back(tensor_of(item, variant));
    else if (item == "True" || item == "False")
      flags.push_back(item == "True");
    else if (type.find("Scalar") != std::string::npos || type.find("number") != std::string::npos)
      scalars.push_back(std::stod(item));
    else if (type.find("float") != std::string::npos)
      floats.push_back(std::stod(item));
    else
      numbers.push_back(std::stoll(item));
  }
  if (!tensors.empty() || type.find("Tensor") != std::string::npos) return tensors;
  if (!flags.empty()) return flags;
  if (!scalars.empty()) {
    c10::impl::GenericList generic(c10::NumberType::get());
    for (const at::Scalar& scalar : scalars) generic.push_back(scalar);
    return generic;
  }
  if (!floats.empty()) return floats;
  return numbers;
}

}  // namespace

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  int depth = 0;
  bool inside = false;
  for (const char letter : text) {
    if (letter == ' ' && depth == 0) {
      inside = false;
      continue;
    }
    if (std::string("([{").find(letter) != std::string::npos) ++depth;
    if (std::string(")]}").find(letter) != std::string::npos) --depth;
    if (!inside) words.emplace_back();
    inside = true;
    words.back() += letter;
  }
  return words;
}

std::vector<std::string> items_of(const std::string& list) {
  std::string text = within(list);
  int depth = 0;
  for (char& letter : text) {
    if (letter == '(') ++depth;
    if (letter == ')') --depth;
    if (letter == ',' && depth == 0) letter = ' ';
  }
  return words_of(text);
}

bool is_tensor(const std::string& word) {
  return !word.empty() && std::isalpha(word[0]) != 0 && word.back() == ')';
}

IValue value_of(const std::string& word, const std::string& type, const Variant& variant) {
  if (word == "None") return {};
  if (word == "True" || word == "False") return word == "True";
  if (word[0] == '\'') return within(word);
  if (word[0] == ':') return static_cast<std::int64_t>(type_named(word.substr(1)));
  if (word[0] == '[') return list_of(word, type, variant);
  if (is_tensor(word)) return tensor_of(word, variant);
  if (type.find("float") != std::string::npos || word.find('.') != std::string::npos)
    return std::stod(word);
  return std::int64_t{std::stoll(word)};
}

}  // namespace headroom::sim::testing

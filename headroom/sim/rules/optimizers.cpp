#include <algorithm>
#include <limits>

#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/results.h"

// The fused optimizers and almost all _foreach_ operators write in place, or make one result per
// input: their schema or LibTorch's Meta kernels give their results. These are the others.
namespace headroom::sim::rules {
namespace {

// Each block of a tensor writes a part of its norm; all parts lie in one tensor.
// Source: aten/src/ATen/native/cuda/ForeachReduceOp.cu, foreach_tensor_norm_cuda: kChunkSize 65536.
constexpr std::int64_t kBlock = 65536;

// Sums of integers are int64.
ScalarType norm_type(ScalarType type) {
  return at::isIntegralType(type, true) ? at::kLong : c10::toRealValueType(type);
}

// True if one kernel takes all tensors; else each runs on its own, without parts. Source: the same
// file and ForeachUtils.h, can_use_fast_route. The orders are those 2.11.0's library compares with.
bool in_one_kernel(TensorList tensors, std::initializer_list<double> orders, const Scalar& order) {
  const Tensor& first = tensors[0];
  const double p = order.isComplex() ? 0 : order.to<double>();
  if (!at::isFloatingType(first.scalar_type()) ||
      std::find(orders.begin(), orders.end(), p) == orders.end())
    return false;
  return std::all_of(tensors.begin(), tensors.end(), [&](const Tensor& tensor) {
    return tensor.scalar_type() == first.scalar_type() && tensor.device() == first.device() &&
           tensor.is_non_overlapping_and_dense();
  });
}

std::vector<Tensor> norms(TensorList tensors, const Scalar& order, OptionalType type,
                          std::initializer_list<double> orders) {
  std::vector<Tensor> made;
  if (tensors.empty()) return made;
  std::int64_t blocks = 0;
  for (const Tensor& tensor : tensors)
    blocks = std::max(blocks, (tensor.numel() + kBlock - 1) / kBlock);
  Tensor parts;
  const ScalarType own = type.value_or(c10::toRealValueType(tensors[0].scalar_type()));
  if (follows_cuda() && in_one_kernel(tensors, orders, order))
    parts = contiguous({static_cast<std::int64_t>(tensors.size()) * blocks}, tensors[0],
                       accumulation_type(own));
  for (const Tensor& tensor : tensors)
    made.push_back(scalar(tensor, type.value_or(norm_type(tensor.scalar_type()))));
  return made;
}

// The scalars lie on the host and are read before any kernel runs.
// Source: aten/src/ATen/native/ForeachUtils.h, convert_tensor_to_scalar_list.
void check_numbers(TensorList tensors, const Tensor& numbers) {
  TORCH_CHECK(numbers.device().is_cpu(), "Expected scalars to be on CPU, got ", numbers.device(),
              " instead.");
  TORCH_CHECK(numbers.is_contiguous() && numbers.dim() == 1,
              "Expected packed scalar Tensor to be contiguous and of dimension 1");
  TORCH_CHECK(static_cast<std::int64_t>(tensors.size()) == numbers.size(0),
              "Expected length of scalars to match input of length ", tensors.size(), " but got ",
              numbers.size(0), " instead.");
}

std::vector<Tensor> with_numbers(TensorList tensors, TensorList one, TensorList other,
                                 const Tensor& numbers) {
  check_numbers(tensors, numbers);
  std::vector<Tensor> made;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    made.push_back(elementwise({tensors[i], one[i], other[i]}));
  return made;
}

}  // namespace

void add_optimizers(Table& table) {
  for (const char* name : {"_foreach_addcmul.Tensor", "_foreach_addcdiv.Tensor"})
    table.rule(name, with_numbers);
  for (const char* name : {"_foreach_addcmul_.Tensor", "_foreach_addcdiv_.Tensor"})
    table.rule(name, [](TensorList tensors, TensorList, TensorList, const Tensor& numbers) {
      check_numbers(tensors, numbers);
    });
  table.rule("_foreach_norm.Scalar", [](TensorList tensors, const Scalar& p, OptionalType type) {
    return norms(tensors, p, type, {1, 2, std::numeric_limits<double>::infinity()});
  });
  table.rule("_foreach_powsum.Scalar", [](TensorList tensors, const Scalar& p, OptionalType type) {
    return norms(tensors, p, type, {1, 2});
  });
  table.rule("_foreach_max", [](TensorList tensors) {
    std::vector<Tensor> largest;
    for (const Tensor& tensor : tensors) largest.push_back(scalar(tensor));
    return largest;
  });
  table.rule("_foreach_abs", [](TensorList tensors) {
    std::vector<Tensor> made;
    for (const Tensor& x : tensors) made.push_back(like(x, c10::toRealValueType(x.scalar_type())));
    return made;
  });
  table.rule("_foreach_abs_", [](TensorList) {});  // LibTorch has no Meta kernel for its parts
}

}  // namespace headroom::sim::rules

#include <algorithm>

#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/layout.h"

// The fused optimizers and almost all of _foreach_ write in place, or make one result of each
// input: their schema or LibTorch's Meta kernels say so.
namespace headroom::sim::rules {
namespace {

// Each block of a tensor leaves a part of its norm; all of them lie in one tensor.
// Source: aten/src/ATen/native/cuda/ForeachReduceOp.cu, foreach_tensor_norm_cuda: kChunkSize 65536.
constexpr std::int64_t kBlock = 65536;

// Sums of whole numbers are int64.
ScalarType norm_type(ScalarType type) {
  return at::isIntegralType(type, true) ? at::kLong : c10::toRealValueType(type);
}

std::vector<Tensor> norms(TensorList tensors, const Scalar&, OptionalType type) {
  std::vector<Tensor> made;
  if (tensors.empty()) return made;
  std::int64_t blocks = 0;
  for (const Tensor& tensor : tensors)
    blocks = std::max(blocks, (tensor.numel() + kBlock - 1) / kBlock);
  Tensor parts;
  const ScalarType own = type.value_or(c10::toRealValueType(tensors[0].scalar_type()));
  if (follows_cuda())
    parts = contiguous({static_cast<std::int64_t>(tensors.size()) * blocks}, tensors[0],
                       accumulation_type(own));
  for (const Tensor& tensor : tensors)
    made.push_back(scalar(tensor, type.value_or(norm_type(tensor.scalar_type()))));
  return made;
}

}  // namespace

void add_optimizers(Table& table) {
  table.rule("_foreach_norm.Scalar", norms);
  table.rule("_foreach_powsum.Scalar", norms);
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
  for (const char* name : {"_foreach_norm.Scalar", "_foreach_powsum.Scalar"})
    table.differs(
        name,
        [](TensorList tensors, const Scalar&, OptionalType) {
          std::int64_t blocks = 0;
          for (const Tensor& tensor : tensors)
            blocks = std::max(blocks, (tensor.numel() + kBlock - 1) / kBlock);
          return static_cast<std::int64_t>(tensors.size()) * blocks * std::int64_t{4};
        },
        "CUDA keeps a part for each block of 65536 elements for as long as it runs",
        "aten/src/ATen/native/cuda/ForeachReduceOp.cu");
}

}  // namespace headroom::sim::rules

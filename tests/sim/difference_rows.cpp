#include "difference_rows.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <initializer_list>
#include <limits>

namespace headroom::sim::testing {
namespace {

using at::ScalarType;
using at::Tensor;
using torch::jit::Stack;

std::int64_t nothing(const Stack&) {
  return 0;
}

// Undefined if the argument is none.
Tensor tensor(const Stack& arguments, std::size_t i) {
  return arguments.at(i).isTensor() ? arguments.at(i).toTensor() : Tensor();
}

std::int64_t bytes_of(ScalarType type) {
  return static_cast<std::int64_t>(c10::elementSize(type));
}

std::int64_t bytes_of_sum(const Tensor& x) {
  return bytes_of(at::toOpMathType(x.scalar_type()));
}

// On the CPU statistics have the input's type, or float beside parameters of another type.
std::int64_t bytes_on_cpu(const Tensor& x, std::initializer_list<Tensor> parameters) {
  const auto* const first = std::find_if(parameters.begin(), parameters.end(),
                                         [](const Tensor& one) { return one.defined(); });
  const bool wide = first != parameters.end() && first->scalar_type() != x.scalar_type();
  return wide ? bytes_of(at::kFloat) : x.element_size();
}

// ---- Normalisation ----

struct BatchNorm {
  Tensor x, weight, bias, mean, var;
  bool training;
};

bool takes_cudnn(const BatchNorm& b) {
  const ScalarType type = b.x.scalar_type();
  if (!b.weight.defined() || !b.bias.defined() || b.x.dim() < 3) return false;
  if (b.mean.defined() != b.var.defined() || (!b.mean.defined() && !b.training)) return false;
  if (type == at::kBFloat16 || b.weight.scalar_type() == at::kBFloat16) return false;
  if (type == at::kHalf && b.weight.scalar_type() != at::kFloat) return false;
  return b.x.size(0) <= (b.training ? 880801 : 65535) &&
         b.x.numel() < std::numeric_limits<std::int32_t>::max();
}

std::int64_t of_batch_norm(const BatchNorm& b) {
  const std::int64_t channels = b.x.size(1);
  if (b.training)
    return 2 * channels *
           (bytes_of_sum(b.x) - bytes_on_cpu(b.x, {b.weight, b.bias, b.mean, b.var}));
  return takes_cudnn(b) ? 0 : 2 * channels * bytes_of_sum(b.x);
}

BatchNorm batch_norm_of(const Stack& a) {
  return {tensor(a, 0), tensor(a, 1), tensor(a, 2), tensor(a, 3), tensor(a, 4), a.at(5).toBool()};
}

std::int64_t batch_norm(const Stack& a) {
  return of_batch_norm(batch_norm_of(a));
}

std::int64_t batch_norm_out(const Stack& a) {
  const BatchNorm b = batch_norm_of(a);
  if (b.training || takes_cudnn(b)) return 0;
  return b.x.size(1) * (tensor(a, 9).element_size() + tensor(a, 10).element_size());
}

std::int64_t batch_norm_without_running(const Stack& a) {
  return of_batch_norm({tensor(a, 0), tensor(a, 1), tensor(a, 2), {}, {}, a.at(3).toBool()});
}

std::int64_t batch_norm_with_update(const Stack& a) {
  return of_batch_norm(
      {tensor(a, 0), tensor(a, 1), tensor(a, 2), tensor(a, 3), tensor(a, 4), true});
}

std::int64_t update_of_statistics(const Stack& a) {
  const Tensor x = tensor(a, 0);
  return 2 * x.size(1) * (bytes_of_sum(x) - bytes_on_cpu(x, {tensor(a, 1), tensor(a, 2)}));
}

std::int64_t layer_norm(const Stack& a) {
  const Tensor x = tensor(a, 0);
  const std::int64_t rows = x.numel() / c10::multiply_integers(a.at(1).toIntVector());
  return 2 * rows * (bytes_of_sum(x) - bytes_on_cpu(x, {tensor(a, 2), tensor(a, 3)}));
}

// ---- Others ----

std::int64_t dropout(const Stack& a) {
  const Tensor x = tensor(a, 0);
  return x.numel() * (1 - x.element_size());
}

std::int64_t log_sigmoid(const Stack& a) {
  const Tensor x = tensor(a, 0);
  return -x.numel() * x.element_size();
}

std::int64_t least_squares(const Stack& arguments) {
  if (!arguments.at(3).isNone()) return 0;
  const Tensor a = tensor(arguments, 0), b = tensor(arguments, 1);
  const std::int64_t rows = a.size(-2), unknowns = a.size(-1);
  const bool is_vector = b.dim() == 1 || (a.dim() - 1 == b.dim() &&
                                          b.sizes() == a.sizes().slice(0, a.sizes().size() - 1));
  const std::int64_t batch = c10::multiply_integers(a.sizes().slice(0, a.sizes().size() - 2));
  const std::int64_t residuals = rows > unknowns ? batch * (is_vector ? 1 : b.size(-1)) : 0;
  const std::int64_t ranks = batch * 8;
  return residuals * bytes_of(c10::toRealValueType(a.scalar_type())) - ranks;
}

// A library for embeddings sums bags of these on the CPU, and needs no list of bags.
bool is_fast_bag(const Tensor& weight, const Tensor& scales, std::int64_t padding) {
  const ScalarType type = weight.scalar_type();
  return (type == at::kFloat || type == at::kHalf) && weight.stride(1) == 1 && padding < 0 &&
         (!scales.defined() || scales.stride(0) == 1);
}

std::int64_t of_bag(const Stack& a, bool forward_only) {
  constexpr std::int64_t kSum = 0, kMax = 2;
  const Tensor indices = tensor(a, 1);
  const std::int64_t offsets = tensor(a, 2).size(0), mode = a.at(4).toInt();
  const std::int64_t bags = offsets - (a.at(7).toBool() ? 1 : 0);
  const bool listed = mode != kSum || !is_fast_bag(tensor(a, 0), tensor(a, 6), a.at(8).toInt());
  return indices.element_size() * ((listed ? 0 : indices.size(0)) +
                                   (forward_only ? 0 : offsets - bags) - (mode == kMax ? 0 : bags));
}

std::int64_t bag(const Stack& a) {
  return of_bag(a, false);
}

std::int64_t bag_forward_only(const Stack& a) {
  return of_bag(a, true);
}

}  // namespace

const std::map<std::string, DifferenceRow>& difference_rows() {
  constexpr const char* kBatchNorm =
      "CUDA keeps the statistics in float, and without cuDNN in evaluation, too";
  constexpr const char* kBatchNormSource =
      "aten/src/ATen/native/cuda/Normalization.cu, batch_norm_cuda; "
      "aten/src/ATen/native/cudnn/BatchNorm.cpp; aten/src/ATen/native/Normalization.cpp";
  constexpr const char* kTwoPasses =
      "CUDA sums the parameters' gradients of more than 65536 short rows in two passes";
  constexpr const char* kTwoPassesSource =
      "aten/src/ATen/native/cuda/layer_norm_kernel.cu, LaunchGammaBetaBackwardCUDAKernel";
  constexpr const char* kLeastSquares =
      "where no driver is named, CUDA takes gels, which gives residuals, and the CPU gelsy, which "
      "gives the rank";
  constexpr const char* kLeastSquaresSource =
      "aten/src/ATen/native/BatchLinearAlgebra.cpp, get_default_lstsq_driver";
  constexpr const char* kBuffer = "the CPU keeps a buffer as large as the input, CUDA none";
  constexpr const char* kBufferSource =
      "aten/src/ATen/native/cuda/Activation.cpp, log_sigmoid_forward_cuda";
  constexpr const char* kBag =
      "CUDA always lists the bag of each index, and keeps no maxima for sums and means";
  constexpr const char* kBagSource =
      "aten/src/ATen/native/cuda/EmbeddingBag.cu, aten/src/ATen/native/EmbeddingBag.cpp";
  constexpr const char* kSortedBag =
      "the result is the same; on the way CUDA sorts the indices and sums rows in float";
  constexpr const char* kEachLoss =
      "the loss of each element lives until it is reduced, which the CPU's shapes do not tell";
  constexpr const char* kPairs =
      "the result is the same; on the way CUDA keeps the gradient of each pair of rows";
  constexpr const char* kMedian =
      "the result is the same; on the way CUDA sorts a copy, with the places besides";
  constexpr const char* kParts =
      "the results are the same; on the way CUDA keeps a part for each block of 65536 elements";
  static const std::map<std::string, DifferenceRow> rows{
      {"native_batch_norm", {batch_norm, kBatchNorm, kBatchNormSource}},
      {"native_batch_norm.out", {batch_norm_out, kBatchNorm, kBatchNormSource}},
      {"_native_batch_norm_legit", {batch_norm, kBatchNorm, kBatchNormSource}},
      {"_native_batch_norm_legit.out", {batch_norm_out, kBatchNorm, kBatchNormSource}},
      {"_native_batch_norm_legit.no_stats",
       {batch_norm_without_running, kBatchNorm, kBatchNormSource}},
      {"_batch_norm_with_update", {batch_norm_with_update, kBatchNorm, kBatchNormSource}},
      {"batch_norm_update_stats",
       {update_of_statistics, "CUDA keeps the statistics in float", kBatchNormSource}},
      {"native_layer_norm",
       {layer_norm,
        "CUDA keeps mean and deviation of each row in float, the CPU in the input's type",
        "aten/src/ATen/native/cuda/layer_norm_kernel.cu, layer_norm_cuda; "
        "aten/src/ATen/native/layer_norm.cpp, layer_norm_cpu"}},
      {"native_layer_norm_backward", {nothing, kTwoPasses, kTwoPassesSource}},
      {"_fused_rms_norm_backward", {nothing, kTwoPasses, kTwoPassesSource}},
      {"native_group_norm",
       {nothing, "CUDA needs two numbers a channel on the way",
        "aten/src/ATen/native/cuda/group_norm_kernel.cu, GroupNormKernelImplInternal"}},
      {"native_dropout",
       {dropout, "CUDA keeps a mask of one byte an element, the CPU one of the input's type",
        "aten/src/ATen/native/cuda/Dropout.cu, aten/src/ATen/native/Dropout.cpp"}},
      {"linalg_lstsq", {least_squares, kLeastSquares, kLeastSquaresSource}},
      {"linalg_lstsq.out", {least_squares, kLeastSquares, kLeastSquaresSource}},
      {"log_sigmoid_forward", {log_sigmoid, kBuffer, kBufferSource}},
      {"log_sigmoid_forward.output", {log_sigmoid, kBuffer, kBufferSource}},
      {"_softmax_backward_data",
       {nothing, "CUDA multiplies gradient and result into a temporary first",
        "aten/src/ATen/native/cuda/SoftMax.cu, softmax_backward_cuda_out"}},
      {"_embedding_bag", {bag, kBag, kBagSource}},
      {"_embedding_bag_forward_only", {bag_forward_only, kBag, kBagSource}},
      {"_embedding_bag_backward",
       {nothing, kSortedBag, "aten/src/ATen/native/cuda/EmbeddingBag.cu"}},
      {"_embedding_bag_dense_backward",
       {nothing, kSortedBag, "aten/src/ATen/native/cuda/EmbeddingBag.cu"}},
      {"embedding_dense_backward",
       {nothing,
        "the result is the same; on the way CUDA sums rows in float, as many as there are indices",
        "aten/src/ATen/native/cuda/EmbeddingBackwardKernel.cu, "
        "aten/src/ATen/native/Embedding.cpp"}},
      {"embedding_renorm_",
       {nothing, "in place; on the way CUDA sorts the indices and lists the different ones",
        "aten/src/ATen/native/cuda/Embedding.cu, embedding_renorm_cuda_"}},
      {"_index_put_impl_",
       {nothing, "in place; on the way CUDA sorts the places before it sums what meets at one",
        "aten/src/ATen/native/cuda/Indexing.cu, index_put_with_sort_kernel"}},
      {"equal",
       {nothing, "a number is read; on the way CUDA keeps a mask of what is equal",
        "aten/src/ATen/native/cuda/Equal.cpp"}},
      {"mse_loss", {nothing, kEachLoss, "aten/src/ATen/native/Loss.cpp, mse_loss_out"}},
      {"smooth_l1_loss", {nothing, kEachLoss, "aten/src/ATen/native/Loss.cpp, smooth_l1_loss_out"}},
      {"_foreach_norm.Scalar", {nothing, kParts, "aten/src/ATen/native/cuda/ForeachReduceOp.cu"}},
      {"_foreach_powsum.Scalar", {nothing, kParts, "aten/src/ATen/native/cuda/ForeachReduceOp.cu"}},
      {"multinomial",
       {nothing,
        "the result is the same; on the way CUDA keeps the weights twice and their running sums, "
        "the CPU those of one row",
        "aten/src/ATen/native/cuda/MultinomialKernel.cu, "
        "aten/src/ATen/native/cpu/MultinomialKernel.cpp"}},
      {"_cdist_backward",
       {nothing, kPairs,
        "aten/src/ATen/native/cuda/DistanceKernel.cu, cdist_backward_kernel_impl"}},
      {"_pdist_backward",
       {nothing, kPairs,
        "aten/src/ATen/native/cuda/DistanceKernel.cu, pdist_backward_kernel_impl"}},
      {"count_nonzero.dim_IntList",
       {nothing,
        "the result is the same; on the way CUDA keeps a mask where the CPU counts all of a tensor",
        "aten/src/ATen/native/TensorAdvancedIndexing.cpp, count_nonzero_cuda, "
        "count_nonzero_cpu"}},
      {"median", {nothing, kMedian, "aten/src/ATen/native/cuda/Sorting.cpp, median_impl"}},
      {"nanmedian", {nothing, kMedian, "aten/src/ATen/native/cuda/Sorting.cpp, median_impl"}},
  };
  return rows;
}

}  // namespace headroom::sim::testing

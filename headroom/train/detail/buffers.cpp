#include "headroom/train/detail/buffers.h"

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/first_failure.h"
#include "headroom/nn/checkpoint.h"

namespace headroom::train::detail {
namespace {

using at::Tensor;

// Arguments of aten::batch_norm.
constexpr std::size_t kInput = 0, kMean = 3, kTraining = 5, kMomentum = 6;

bool is_one_place(const Tensor& one, const Tensor& other) {
  return one.is_alias_of(other) && one.storage_offset() == other.storage_offset() &&
         one.sizes() == other.sizes();
}

// Tensors of inference mode have none.
std::int64_t version_of(const Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<std::int64_t>(tensor._version());
}

}  // namespace

// The running statistics of one batch norm, and the pooled ones of this step's parts.
struct Buffers::Norm {
  std::size_t mean = 0, variance = 0;  // in buffers_
  std::optional<std::size_t> batches;  // num_batches_tracked
  Tensor pooled_mean, pooled_squares;  // the sum of squared differences from the mean
  Tensor difference;                   // scratch
  double elements = 0;                 // a channel, so far in this step
  double momentum = 0;                 // of the first call
};

Buffers::Buffers(const std::vector<torch::nn::Module*>& modules, parallel::Group replicas)
    : replicas_(std::move(replicas)) {
  for (const torch::nn::Module* module : modules) add(*module);
}

void Buffers::add(const torch::nn::Module& module) {
  const at::NoGradGuard no_grad;
  std::map<std::string, std::size_t> places;
  for (const auto& named : module.named_buffers()) {
    const Tensor& buffer = named.value();
    const auto is_it = [&](const Buffer& one) { return is_one_place(one.value, buffer); };
    if (!buffer.defined() || std::any_of(buffers_.begin(), buffers_.end(), is_it)) continue;
    if (buffer.layout() != at::kStrided || buffer.is_quantized() ||
        !buffer.is_non_overlapping_and_dense())
      throw UsageError(expectation("Step", "buffers that can be copied in place",
                                   named.key() +
                                       ", which is sparse, quantised, or has several elements "
                                       "in one place of memory",
                                   "buffer.contiguous()"));
    places.emplace(named.key(), buffers_.size());
    buffers_.push_back({buffer, buffer.variable_data(), at::empty_like(buffer)});
  }
  for (const auto& [name, place] : places) {
    constexpr std::string_view ending = "running_mean";
    if (!name.ends_with(ending)) continue;
    const std::string stem = name.substr(0, name.size() - ending.size());
    const auto variance = places.find(stem + "running_var");
    if (variance == places.end()) continue;
    auto norm = std::make_unique<Norm>();
    norm->mean = place;
    norm->variance = variance->second;
    if (const auto batches = places.find(stem + "num_batches_tracked"); batches != places.end())
      norm->batches = batches->second;
    for (const auto at : {norm->mean, norm->variance, norm->batches.value_or(norm->mean)})
      buffers_[at].is_statistic = true;
    for (Tensor* kept : {&norm->pooled_mean, &norm->pooled_squares, &norm->difference})
      *kept = at::empty_like(buffers_[place].value);
    norms_.push_back(std::move(norm));
  }
}

Buffers::~Buffers() = default;

void Buffers::begin(bool pools) {
  const at::NoGradGuard no_grad;
  for (Buffer& buffer : buffers_) {
    buffer.before.copy_(buffer.value);
    buffer.version = version_of(buffer.own);
  }
  pools_ = pools;
  for (const auto& norm : norms_) {
    norm->elements = 0;
    if (!pools_) continue;
    norm->pooled_mean.zero_();
    norm->pooled_squares.zero_();
  }
}

Buffers::Norm* Buffers::norm_of(libtorch::OperatorCall& call) const {
  if (!pools_ || std::string_view(call.name()) != "aten::batch_norm" || nn::recomputing() ||
      !call.argument(kMean).isTensor() || !call.argument(kTraining).toBool())
    return nullptr;
  const Tensor& mean = call.argument(kMean).toTensor();
  for (const auto& norm : norms_)
    if (mean.defined() && is_one_place(buffers_[norm->mean].value, mean)) return norm.get();
  return nullptr;
}

void Buffers::on_call(libtorch::OperatorCall& call) {
  Norm* const norm = norm_of(call);
  if (norm == nullptr) return call.run();
  const std::int64_t elements =
      call.argument(kInput).toTensor().numel() / buffers_[norm->mean].value.numel();
  const double momentum = call.argument(kMomentum).toDouble();
  clear(*norm);
  call.run();
  pool(*norm, elements, momentum);
}

// From zero, a layer's update leaves momentum times the mean and the unbiased variance of its
// input.
void Buffers::clear(const Norm& norm) {
  const at::NoGradGuard no_grad;
  buffers_[norm.mean].value.zero_();
  buffers_[norm.variance].value.zero_();
}

// Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
// variances", 1979.
void Buffers::pool(Norm& norm, std::int64_t elements, double momentum) {
  const at::NoGradGuard no_grad;
  if (norm.elements == 0) norm.momentum = momentum;
  const Tensor& mean = buffers_[norm.mean].value;
  const Tensor& variance = buffers_[norm.variance].value;
  const auto count = static_cast<double>(elements);
  const double all = norm.elements + count;
  if (momentum != 0) {
    mean.div_(momentum);
    variance.mul_((count - 1) / momentum);
    at::sub_out(norm.difference, mean, norm.pooled_mean);
    norm.pooled_mean.add_(norm.difference, count / all);
    norm.pooled_squares.add_(variance).addcmul_(norm.difference, norm.difference,
                                                norm.elements * count / all);
  }
  norm.elements = all;
  // A layer may be called in another mode before the step ends.
  mean.copy_(buffers_[norm.mean].before);
  variance.copy_(buffers_[norm.variance].before);
}

// ---- With other replicas ----

// They tell each other how many elements each has seen, with which momentum (the first one always
// has rows), and which other buffers replica `last` has changed.
void Buffers::add_up(bool ok, int last) {
  if (replicas_.size() == 1) return;
  const int me = replicas_.rank();
  std::vector<double> numbers;
  for (const auto& norm : norms_) {
    numbers.push_back(ok ? norm->elements : 0);
    numbers.push_back(ok && me == 0 ? norm->momentum : 0);
  }
  for (const Buffer& one : buffers_)
    numbers.push_back(ok && me == last && !one.is_statistic && has_changed(one) ? 1 : 0);
  numbers = replicas_.sum(std::move(numbers));
  auto next = numbers.begin();
  FirstFailure failure;  // the others wait for each of these sums
  for (const auto& norm : norms_) {
    const double all = *next++;
    if (!ok) norm->elements = 0;
    norm->momentum = *next++;
    if (all > 0) failure.always([&] { add_up(*norm, all); });
  }
  for (const Buffer& one : buffers_)
    if (*next++ > 0) failure.always([&] { replicas_.broadcast(one.value, last); });
  failure.rethrow();
}

bool Buffers::has_changed(const Buffer& one) {
  return version_of(one.own) != one.version;
}

void Buffers::add_up(Norm& norm, double all) {
  const at::NoGradGuard no_grad;
  const double mine = norm.elements;
  Tensor &mean = norm.pooled_mean, &squares = norm.pooled_squares, &mean_of_all = norm.difference;
  mean_of_all.copy_(mean).mul_(mine);
  replicas_.sum(mean_of_all);
  mean_of_all.div_(all);
  mean.sub_(mean_of_all);
  squares.addcmul_(mean, mean, mine);
  if (mine == 0) squares.zero_();
  replicas_.sum(squares);
  mean.copy_(mean_of_all);
  norm.elements = all;
}

void Buffers::finish() {
  const at::NoGradGuard no_grad;
  for (const auto& norm : norms_) {
    if (norm->elements == 0) continue;  // not called, not in training, or one part
    buffers_[norm->mean].value.lerp_(norm->pooled_mean, norm->momentum);
    norm->pooled_squares.div_(std::max(norm->elements - 1, 1.0));
    buffers_[norm->variance].value.lerp_(norm->pooled_squares, norm->momentum);
    if (norm->batches) {
      const Buffer& batches = buffers_[*norm->batches];
      batches.value.copy_(batches.before).add_(1);
    }
  }
}

void Buffers::restore() {
  const at::NoGradGuard no_grad;
  for (Buffer& buffer : buffers_) buffer.value.copy_(buffer.before);
}

}  // namespace headroom::train::detail

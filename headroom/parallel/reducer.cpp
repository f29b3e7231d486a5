#include "headroom/parallel/reducer.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/first_failure.h"
#include "headroom/libtorch/operator_calls.h"
#include "headroom/libtorch/streams.h"

namespace headroom::parallel {
namespace {

using at::Tensor;

constexpr Bytes kLeast{1 << 20};
constexpr std::int64_t kBuckets = 8;  // of a model that is too small for full ones

// All elements in the order of memory. Autograd lays a gradient out as its parameter, so replicas
// have the same order.
Tensor flat(const Tensor& gradient) {
  if (gradient.layout() != at::kStrided || !gradient.is_non_overlapping_and_dense())
    throw UsageError(expectation("Reducer", "dense gradients", "one that is not",
                                 "an embedding without `sparse`"));
  return gradient.as_strided({gradient.numel()}, {1});
}

}  // namespace

class Reducer::State {
 public:
  State(const std::vector<Tensor>& parameters, Group group, Bytes most)
      : parameters_(parameters),
        group_(std::move(group)),
        places_(parameters.size()),
        is_there_(parameters.size()),
        comes_(parameters.size(), true) {
    if (parameters.empty()) throw UsageError(expectation("Reducer", "parameters", "none"));
    device_ = parameters.front().device();
    Bytes all;
    for (const Tensor& one : parameters) all += Bytes{static_cast<std::int64_t>(one.nbytes())};
    bytes_ = std::clamp(Bytes{all.count / kBuckets}, std::min(kLeast, most), most);
    cut();
  }

  struct Hook;
  static void listen(const std::shared_ptr<State>& self);

  void reserve() {
    if (memory_[0].defined()) return;
    std::map<at::ScalarType, std::int64_t> all;
    for (const Tensor& one : parameters_) all[one.scalar_type()] += one.numel();
    std::int64_t largest = 0;
    for (const auto& [type, elements] : all)
      largest = std::max(largest, std::min(elements, room_of(type)) *
                                      static_cast<std::int64_t>(c10::elementSize(type)));
    const auto options = at::TensorOptions(device_).dtype(at::kByte);
    std::array<Tensor, 2> memory;
    for (Tensor& one : memory) one = at::empty({largest}, options);
    memory_ = std::move(memory);
    if (!device_.is_cpu())
      stream_ = c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_);
  }

  void arm() {
    const std::lock_guard lock(mutex_);
    is_armed_ = true;
    next_ = 0;
    is_late_ = false;
    is_there_.assign(is_there_.size(), false);
    for (Bucket& bucket : buckets_) bucket.waits_for = bucket.parameters;
  }

  // A gradient is complete.
  void note(std::size_t parameter) {
    const std::lock_guard lock(mutex_);
    if (!is_armed_) return;
    if (places_[parameter].empty()) return;
    if (is_there_[parameter]) is_late_ = true;
    if (is_late_) return;
    is_there_[parameter] = true;
    for (const std::size_t bucket : places_[parameter]) --buckets_[bucket].waits_for;
    while (next_ < buckets_.size() && buckets_[next_].waits_for == 0) send(buckets_[next_++], true);
  }

  void finish(bool ok) {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(is_armed_, false)) next_ = 0;
    const bool is_late = std::exchange(is_late_, false);
    FirstFailure failure;
    std::vector<double> have(parameters_.size() + 1);
    for (std::size_t i = 0; i < parameters_.size(); ++i) have[i] = has_gradient(i) ? 1 : 0;
    while (next_ < buckets_.size())
      failure.always([&] { send(buckets_[next_++], ok && !failure); });
    have.back() = ok && !failure ? 1 : 0;
    failure.always([&] { have = group_.sum(std::move(have)); });
    if (stream_) libtorch::order(*stream_, libtorch::current_stream(device_));
    failure.rethrow();
    if (have.back() < group_.size()) return;  // some rank has failed
    bool is_as_before = true;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (have[i] == 0 && has_gradient(i)) parameters_[i].mutable_grad().reset();
      is_as_before = is_as_before && comes_[i] == (have[i] > 0);
      comes_[i] = have[i] > 0;
    }
    if (!is_as_before) cut();
    if (is_late)
      throw UsageError(expectation(
          "Reducer", "parameters whose gradient is complete once in a backward pass",
          "one that several parts with reentrant checkpointing share", "Recompute::nonreentrant"));
  }

  [[nodiscard]] std::size_t sent() const {
    const std::lock_guard lock(mutex_);
    return next_;
  }
  [[nodiscard]] std::size_t buckets() const { return buckets_.size(); }

 private:
  // A piece of a parameter, in elements.
  struct Piece {
    std::size_t parameter;
    std::int64_t in_parameter, in_bucket, count;
  };
  struct Bucket {
    at::ScalarType type;
    std::size_t number = 0;
    std::vector<Piece> pieces = {};
    std::int64_t elements = 0;
    std::size_t parameters = 0, waits_for = 0;
    [[nodiscard]] std::int64_t bytes() const {
      return elements * static_cast<std::int64_t>(c10::elementSize(type));
    }
  };

  // In elements.
  [[nodiscard]] std::int64_t room_of(at::ScalarType type) const {
    return std::max<std::int64_t>(1,
                                  bytes_.count / static_cast<std::int64_t>(c10::elementSize(type)));
  }

  // The parameter whose gradient comes first is the first: mostly the last one of the model. Those
  // that had no gradient in the last step come last, because no other bucket is to wait for them.
  [[nodiscard]] std::vector<std::size_t> order() const {
    std::vector<std::size_t> all;
    for (const bool comes : {true, false})
      for (std::size_t i = parameters_.size(); i-- > 0;)
        if (comes_[i] == comes) all.push_back(i);
    return all;
  }

  // A bucket has one type; the one that is full first goes first.
  void cut() {
    std::map<at::ScalarType, Bucket> open;
    std::vector<Bucket> full;
    for (auto& of_parameter : places_) of_parameter.clear();
    for (const std::size_t i : order()) {
      const Tensor& parameter = parameters_[i];
      const at::ScalarType type = parameter.scalar_type();
      const std::int64_t room = room_of(type);
      for (std::int64_t done = 0; done < parameter.numel();) {
        Bucket& bucket = open.try_emplace(type, Bucket{type}).first->second;
        const std::int64_t count = std::min(parameter.numel() - done, room - bucket.elements);
        bucket.pieces.push_back({i, done, bucket.elements, count});
        bucket.elements += count;
        ++bucket.parameters;
        done += count;
        if (bucket.elements < room) continue;
        full.push_back(std::move(bucket));
        open.erase(type);
      }
    }
    for (auto& [type, bucket] : open) full.push_back(std::move(bucket));
    buckets_ = std::move(full);
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      buckets_[b].number = b;
      for (const Piece& piece : buckets_[b].pieces) places_[piece.parameter].push_back(b);
    }
  }

  [[nodiscard]] bool has_gradient(std::size_t i) const { return parameters_[i].grad().defined(); }

  // Of one piece, an empty tensor if the parameter is not trained.
  [[nodiscard]] Tensor gradient_of(const Piece& piece) {
    Tensor& parameter = parameters_[piece.parameter];
    if (!parameter.requires_grad()) return {};
    if (!parameter.grad().defined()) parameter.mutable_grad() = at::zeros_like(parameter);
    return flat(parameter.grad()).narrow(0, piece.in_parameter, piece.count);
  }

  void send(const Bucket& bucket, bool ok) {
    const at::NoGradGuard no_grad;
    const libtorch::UnseenScope unseen;
    const Tensor sums =
        memory_[bucket.number % memory_.size()].narrow(0, 0, bucket.bytes()).view(bucket.type);
    std::vector<Tensor> gradients(ok ? bucket.pieces.size() : 0);
    const auto each = [&](const auto& visit) {
      for (std::size_t i = 0; i < gradients.size(); ++i)
        visit(sums.narrow(0, bucket.pieces[i].in_bucket, bucket.pieces[i].count), gradients[i]);
    };
    FirstFailure failure;
    for (std::size_t i = 0; i < gradients.size(); ++i)
      failure.then([&] { gradients[i] = gradient_of(bucket.pieces[i]); });
    if (stream_) libtorch::order(libtorch::current_stream(device_), *stream_);
    std::optional<c10::StreamGuard> on;
    if (stream_) on.emplace(*stream_);
    failure.then([&] {
      each([](const Tensor& in_bucket, const Tensor& gradient) {
        gradient.defined() ? in_bucket.copy_(gradient) : in_bucket.zero_();
      });
    });
    if (!ok || failure) sums.zero_();
    failure.always([&] { group_.sum(sums); });
    failure.then([&] {
      each([](const Tensor& in_bucket, const Tensor& gradient) {
        if (gradient.defined()) gradient.copy_(in_bucket);
      });
    });
    failure.rethrow();
  }

  std::vector<Tensor> parameters_;
  const Group group_;
  c10::Device device_{c10::kCPU};
  Bytes bytes_;
  std::vector<Bucket> buckets_;
  std::vector<std::vector<std::size_t>> places_;  // the buckets of each parameter
  std::array<Tensor, 2> memory_;
  std::optional<c10::Stream> stream_;

  mutable std::mutex mutex_;
  bool is_armed_ = false, is_late_ = false;
  std::size_t next_ = 0;        // bucket to send
  std::vector<bool> is_there_;  // by parameter, in this backward pass
  std::vector<bool> comes_;     // by parameter: some rank had a gradient in the last step
};

// Owned by the parameter's autograd data, which may outlive the reducer.
struct Reducer::State::Hook final : torch::autograd::PostAccumulateGradHook {
  Hook(std::weak_ptr<State> owner, std::size_t parameter,
       std::unique_ptr<PostAccumulateGradHook> other)
      : reducer(std::move(owner)), index(parameter), before(std::move(other)) {
    // That of an earlier reducer.
    if (auto* const old = dynamic_cast<Hook*>(before.get()); old && old->reducer.expired())
      before = std::move(old->before);
  }
  void operator()(const Tensor& parameter) override {
    if (before) (*before)(parameter);
    if (const auto state = reducer.lock()) state->note(index);
  }

  std::weak_ptr<State> reducer;
  std::size_t index;
  std::unique_ptr<PostAccumulateGradHook> before;
};

void Reducer::State::listen(const std::shared_ptr<State>& self) {
  for (std::size_t i = 0; i < self->parameters_.size(); ++i) {
    const Tensor& parameter = self->parameters_[i];
    auto& slot = torch::autograd::impl::post_acc_grad_hooks(parameter);
    torch::autograd::impl::set_post_acc_grad_hooks(
        parameter, std::make_unique<Hook>(self, i, std::move(slot)));
  }
}

Reducer::Reducer(const std::vector<Tensor>& parameters, Group group, Bytes most)
    : state_(std::make_shared<State>(parameters, std::move(group), most)) {
  State::listen(state_);
}
Reducer::~Reducer() = default;

void Reducer::reserve() {
  state_->reserve();
}
void Reducer::arm() {
  state_->arm();
}
void Reducer::finish(bool ok) {
  state_->finish(ok);
}
std::size_t Reducer::sent() const {
  return state_->sent();
}
std::size_t Reducer::buckets() const {
  return state_->buckets();
}

}  // namespace headroom::parallel

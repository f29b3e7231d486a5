#include "headroom/train/detail/writes.h"

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>

#include "headroom/base/error.h"
#include "headroom/libtorch/autograd_engine.h"
#include "headroom/libtorch/random_state.h"
#include "headroom/libtorch/tensors_in.h"

namespace headroom::train::detail {
namespace {

using at::Tensor;

constexpr std::size_t kSmall = 64 << 10;  // bytes

// The new values do not depend on the old ones: out= forms, and some in-place ones.
bool overwrites(std::string_view name) {
  constexpr std::array<std::string_view, 9> kFilling = {
      "aten::zero_",      "aten::fill_",   "aten::copy_",        "aten::normal_", "aten::uniform_",
      "aten::bernoulli_", "aten::random_", "aten::exponential_", "aten::set_"};
  return (!name.ends_with('_') && name.find("_norm") == std::string_view::npos) ||
         std::find(kFilling.begin(), kFilling.end(), name) != kFilling.end();
}

// Makes a tensor by filling an empty one or by a copy, which later attempts see as a write.
bool fills(std::string_view name) {
  constexpr std::array<std::string_view, 7> kFills = {"zeros",  "ones",  "full", "rand",
                                                      "arange", "clone", "_copy"};
  return std::any_of(kFills.begin(), kFills.end(), [&](std::string_view word) {
    return name.find(word) != std::string_view::npos;
  });
}

// It may be a sum that the program made since the last step. Copying one that the attempt made does
// no harm.
bool may_be_a_sum(const Tensor& tensor, std::string_view by) {
  return tensor.storage().nbytes() <= kSmall && !tensor.requires_grad() && !overwrites(by) &&
         !libtorch::in_backward_pass();
}

bool is_same_view(const Tensor& one, const Tensor& other) {
  return one.storage().is_alias_of(other.storage()) && one.dtype() == other.dtype() &&
         one.storage_offset() == other.storage_offset() && one.sizes() == other.sizes() &&
         one.strides() == other.strides();
}

Complaint cannot_be_put_back(const char* by, const Tensor& tensor) {
  std::ostringstream what;
  what << "a " << tensor.dtype().name() << " tensor of " << tensor.sizes() << " on "
       << tensor.device() << ", which " << by
       << " changed in an attempt that failed and changes again in the next one: its old values "
          "are not known";
  return expectation("Step::run", "a loss that changes only tensors made before the first step",
                     what.str(), "making it before, or changing it after run()");
}

}  // namespace

Writes::Watch::Watch(Writes& writes)
    : scope_(writes,
             writes.sees_all_ ? libtorch::CallScope::Of::all : libtorch::CallScope::Of::writing) {}

void Writes::begin(const std::vector<Tensor>& rows, libtorch::RandomState& random) {
  random_ = &random;
  for (const at::Generator& generator : generators_) random.take(generator);
  for (const Tensor& one : rows)
    if (one.defined() && one.has_storage()) known(one, Origin::older);
  for (Leaf& leaf : leaves_) {
    const auto tensor = leaf.tensor.lock();
    if (tensor) leaf.gradient = Tensor(tensor).grad();
    if (leaf.gradient.defined() && leaf.gradient.has_storage()) known(leaf.gradient, Origin::older);
  }
}

void Writes::leave_out(const Tensor& tensor) {
  if (tensor.has_storage()) known(tensor, Origin::elsewhere).origin = Origin::elsewhere;
}

Writes::Known& Writes::known(const Tensor& tensor, Origin otherwise) {
  const c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  const auto found = known_.find(storage);
  if (found != known_.end()) return found->second;
  return known_.emplace(storage, Known{tensor.storage().getWeakStorageImpl(), otherwise})
      .first->second;
}

// ---- While the loss runs ----

void Writes::on_call(libtorch::OperatorCall& call) {
  {
    const std::lock_guard lock(mutex_);
    look_at(call);
    call.for_each_written([&](const Tensor& tensor) { before_write(call, tensor); });
  }
  call.run();
  if (!sees_all_) return;
  const std::lock_guard lock(mutex_);
  const bool is_written = copies_as_later_ && fills(call.name());
  call.for_each_result([&](const Tensor& tensor) {
    if (tensor.defined() && tensor.has_storage())
      known(tensor, is_written ? Origin::unclear : Origin::born);
  });
}

void Writes::look_at(libtorch::OperatorCall& call) {
  for (std::size_t i = 0; i < call.count(); ++i) {
    const c10::IValue& argument = call.argument(i);
    if (argument.isGenerator()) {
      if (random_->take(argument.toGenerator())) generators_.push_back(argument.toGenerator());
    } else if (sees_all_) {
      libtorch::for_each_tensor(argument, [&](const Tensor& tensor) { see(tensor); });
    }
  }
}

void Writes::see(const Tensor& argument) {
  if (!argument.defined() || !argument.has_storage()) return;
  const std::size_t before = known_.size();
  known(argument, Origin::older);
  if (known_.size() > before && argument.requires_grad() && argument.is_leaf())
    leaves_.push_back({WeakTensor(argument.getIntrusivePtr()), argument.grad()});
}

void Writes::before_write(const libtorch::OperatorCall& call, const Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  const std::size_t before = known_.size();
  Known& place = known(tensor, Origin::unclear);
  const bool is_new_later = copies_as_later_ && place.origin == Origin::born,
             is_new = known_.size() > before || is_new_later;
  if (is_new_later) place.origin = Origin::unclear;
  if (is_new && may_be_a_sum(tensor, call.name())) place.origin = Origin::older;
  if (place.origin == Origin::doubtful) throw UsageError(cannot_be_put_back(call.name(), tensor));
  if (place.origin == Origin::older) remember(place, tensor);
}

// A copy that fails ends the operator before it has written.
void Writes::remember(Known& place, const Tensor& tensor) {
  if (place.is_whole) return;
  const auto is_kept = [&](const Copy& copy) { return is_same_view(copy.value, tensor); };
  if (std::any_of(copies_.begin(), copies_.end(), is_kept)) return;
  const c10::InferenceMode normal(false);
  const at::NoGradGuard no_grad;
  Copy copy{tensor.variable_data(), at::empty_like(tensor)};
  copy.before.copy_(copy.value);
  copies_.push_back(std::move(copy));
  place.is_whole =
      tensor.is_non_overlapping_and_dense() && tensor.nbytes() == tensor.storage().nbytes();
}

// ---- At its end ----

void Writes::commit() {
  copies_.clear();
  end(Origin::older);
  sees_all_ = false;
}

void Writes::undo() {
  if (random_ == nullptr) return;  // the attempt had not begun
  const at::NoGradGuard no_grad;
  // A storage may have been copied in overlapping pieces.
  for (auto copy = copies_.rbegin(); copy != copies_.rend(); ++copy)
    copy->value.copy_(copy->before);
  copies_.clear();
  for (const Leaf& leaf : leaves_)
    if (const auto tensor = leaf.tensor.lock()) Tensor(tensor).mutable_grad() = leaf.gradient;
  end(Origin::doubtful);
  sees_all_ = true;
}

void Writes::forget() {
  known_.clear();
  leaves_.clear();
  sees_all_ = true;
}

// Marks tensors that are alive and were made in the attempt as `born`.
void Writes::end(Origin born) {
  std::erase_if(known_, [](const auto& one) { return one.second.storage.expired(); });
  for (auto& [storage, one] : known_) {
    one.is_whole = false;
    if (one.origin == Origin::born || one.origin == Origin::unclear ||
        (one.origin == Origin::doubtful && born == Origin::older))
      one.origin = born;
  }
  std::erase_if(leaves_, [](const Leaf& leaf) { return leaf.tensor.expired(); });
  for (Leaf& leaf : leaves_) leaf.gradient.reset();
  random_ = nullptr;
}

}  // namespace headroom::train::detail

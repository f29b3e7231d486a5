#include "headroom/parallel/border.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/first_failure.h"
#include "headroom/libtorch/operator_calls.h"

namespace headroom::parallel {
namespace {

using at::Tensor;

// The message that goes ahead: the number of tensors, kNothing if there is no list, and of each
// its type (kUndefined if it is not there), whether it requires a gradient, and its sizes.
constexpr std::int64_t kNumbers = 1024, kNothing = -1, kUndefined = -1;

std::vector<std::int64_t> description_of(const Border::Tensors& tensors) {
  std::vector<std::int64_t> numbers{static_cast<std::int64_t>(tensors.size())};
  for (const Tensor& one : tensors) {
    if (!one.defined()) {
      numbers.push_back(kUndefined);
      continue;
    }
    numbers.insert(numbers.end(), {static_cast<std::int64_t>(one.scalar_type()),
                                   one.requires_grad() ? 1 : 0, one.dim()});
    numbers.insert(numbers.end(), one.sizes().begin(), one.sizes().end());
  }
  if (numbers.size() > kNumbers)
    throw UsageError(
        expectation("Border", "fewer tensors between two stages", std::to_string(tensors.size())));
  return numbers;
}

Tensor header() {
  return at::empty({kNumbers}, at::kLong);
}

void write(const Tensor& message, const std::vector<std::int64_t>& numbers) {
  std::copy(numbers.begin(), numbers.end(), message.data_ptr<std::int64_t>());
}

// Tensors without values.
Border::Tensors described(const Tensor& message) {
  const std::int64_t* next = message.data_ptr<std::int64_t>();
  Border::Tensors tensors(static_cast<std::size_t>(*next++));
  for (Tensor& one : tensors) {
    const std::int64_t type = *next++;
    if (type == kUndefined) continue;
    const bool requires_grad = *next++ != 0;
    const std::int64_t dimensions = *next++;
    one = at::empty({next, static_cast<std::size_t>(dimensions)},
                    at::TensorOptions(at::kMeta).dtype(static_cast<at::ScalarType>(type)));
    one.set_requires_grad(requires_grad);
    next += dimensions;
  }
  return tensors;
}

Tensor on(c10::Device device, const Tensor& like) {
  return like.defined() ? at::empty(like.sizes(), like.options().device(device)) : Tensor();
}

}  // namespace

Border::Border(Group stages, int neighbour)
    : stages_(std::move(stages)), neighbour_(neighbour), sent_(header()), received_(header()) {}

Border Border::alone(std::optional<std::vector<Tensors>> given) {
  Border border;
  border.likes_ = std::move(given);
  return border;
}

void Border::start() {
  given_.clear();
  taken_ = 0;
}

void Border::send(const Tensor& tensor) {
  under_way_.push_back(stages_.send(tensor, neighbour_));
}

void Border::receive(const Tensor& into) {
  stages_.receive(into, neighbour_);
}

// The neighbour gets a message in any case.
void Border::give(const Tensors& tensors) {
  std::vector<std::int64_t> description;
  Tensors ready;
  FirstFailure failure;
  failure.then([&] {
    description = description_of(tensors);
    for (const Tensor& one : tensors)
      ready.push_back(one.defined() ? one.detach().contiguous() : Tensor());
  });
  if (failure) give_nothing();
  failure.rethrow();
  end();
  held_ = std::move(ready);
  if (is_alone()) return note(tensors);
  write(sent_, description);
  send(sent_);
  for (const Tensor& one : held_)
    if (one.defined()) send(one);
}

void Border::note(const Tensors& tensors) {
  Tensors likes;
  for (const Tensor& one : tensors) {
    likes.push_back(on(at::kMeta, one));
    if (one.defined()) likes.back().set_requires_grad(one.requires_grad());
  }
  given_.push_back(std::move(likes));
}

void Border::give_nothing() {
  end();
  if (is_alone()) return;
  write(sent_, {kNothing});
  send(sent_);
}

void Border::end() {
  for (const auto& work : under_way_) work->wait();
  under_way_.clear();
  held_.clear();
}

// std::nullopt if the neighbour gives nothing.
std::optional<Border::Tensors> Border::announced() {
  {
    const libtorch::UnseenScope unseen;
    receive(received_);
  }
  if (*received_.data_ptr<std::int64_t>() == kNothing) return {};
  return described(received_);
}

Border::Tensors Border::take(c10::Device device) {
  if (is_alone()) return take_alone(device);
  const auto likes = announced();
  if (!likes) throw NothingGiven();
  Tensors tensors;
  FirstFailure failure;
  for (const Tensor& like : *likes) {
    Tensor one;
    failure.then([&] { one = on(device, like); });
    if (like.defined()) failure.always([&] { receive(one); });
    tensors.push_back(one);
  }
  failure.rethrow();
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].defined()) tensors[i].set_requires_grad((*likes)[i].requires_grad());
  return tensors;
}

Border::Tensors Border::take_alone(c10::Device device) {
  const auto& lists = likes_ ? *likes_ : given_;
  Tensors tensors;
  for (const Tensor& like : lists.at(taken_++)) {
    const bool comes = like.defined() && (likes_ || like.requires_grad());
    tensors.push_back(comes ? on(device, like) : Tensor());
    if (comes && likes_) tensors.back().set_requires_grad(like.requires_grad());
  }
  return tensors;
}

void Border::skip() {
  if (is_alone()) return;
  const auto likes = announced();
  if (!likes) return;
  for (const Tensor& like : *likes)
    if (like.defined()) receive({});
}

}  // namespace headroom::parallel

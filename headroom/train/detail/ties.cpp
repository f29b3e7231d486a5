#include "headroom/train/detail/ties.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "headroom/base/error.h"

namespace headroom::train::detail {
namespace {

using at::Tensor;

constexpr std::int64_t kPiece = 16 << 20;  // bytes

// Calls `visit(piece)` for each piece of a tensor, first to last.
template <typename Visit>
void for_pieces(const Tensor& tensor, const Visit& visit) {
  const Tensor flat = tensor.detach().view(-1);
  const auto most = kPiece / static_cast<std::int64_t>(flat.element_size());
  for (std::int64_t done = 0; done < flat.numel(); done += most)
    visit(flat.narrow(0, done, std::min(most, flat.numel() - done)));
}

// It goes in pieces of its memory.
void check_gradient(const Tensor& weight) {
  const Tensor& gradient = weight.grad();
  if (gradient.defined() && (gradient.layout() != at::kStrided || !gradient.is_contiguous()))
    throw UsageError(expectation("Step", "dense gradients of tied weights", "one that is not",
                                 "an embedding without `sparse`"));
}

}  // namespace

Ties::Ties(parallel::Group stages, std::vector<Tied> all)
    : stages_(std::move(stages)), all_(std::move(all)), has_gradient_(at::ones({1}, at::kLong)) {
  for (const Tied& one : all_)
    if (!one.weight.is_contiguous())
      throw UsageError(expectation("Step", "tied weights that are contiguous", "one that is not"));
}

void Ties::reserve() {
  if (piece_.defined()) return;
  std::int64_t bytes = 0;
  for (const Tied& one : all_)
    if (!one.is_copy)
      bytes = std::max(bytes, std::min(kPiece, static_cast<std::int64_t>(one.weight.nbytes())));
  if (bytes > 0)
    piece_ = at::empty({bytes}, at::TensorOptions(all_.front().weight.device()).dtype(at::kByte));
}

void Ties::add_up(FirstFailure& failure) {
  const at::NoGradGuard no_grad;
  for (const Tied& one : all_) {
    if (one.is_copy)
      give_gradient(one, failure);
    else
      take_gradient(one, failure);
  }
}

void Ties::give_gradient(const Tied& tied, FirstFailure& failure) {
  failure.then([&] { check_gradient(tied.weight); });
  const bool has = !failure && tied.weight.grad().defined();
  failure.always([&] {
    has_gradient_.fill_(has ? 1 : 0);
    std::vector<c10::intrusive_ptr<c10d::Work>> sent{stages_.send(has_gradient_, tied.other)};
    if (has)
      for_pieces(tied.weight.grad(),
                 [&](const Tensor& piece) { sent.push_back(stages_.send(piece, tied.other)); });
    for (const auto& one : sent) one->wait();
  });
}

void Ties::take_gradient(const Tied& tied, FirstFailure& failure) {
  failure.always([&] { stages_.receive(has_gradient_, tied.other); });
  if (has_gradient_.item<std::int64_t>() == 0) return;
  Tensor weight = tied.weight;
  failure.then([&] {
    check_gradient(weight);
    if (!weight.grad().defined()) weight.mutable_grad() = at::zeros_like(weight);
  });
  const Tensor sums = failure ? weight : weight.grad();  // the same pieces
  for_pieces(sums, [&](const Tensor& own) {
    const Tensor piece =
        failure
            ? Tensor()
            : piece_.narrow(0, 0, static_cast<std::int64_t>(own.nbytes())).view(own.scalar_type());
    failure.always([&] { stages_.receive(piece, tied.other); });
    failure.then([&] { own.add_(piece); });
  });
}

void Ties::hand_over() {
  const at::NoGradGuard no_grad;
  std::vector<c10::intrusive_ptr<c10d::Work>> sent;
  for (const Tied& one : all_) {
    if (one.is_copy)
      stages_.receive(one.weight.detach(), one.other);
    else
      sent.push_back(stages_.send(one.weight.detach(), one.other));
  }
  for (const auto& one : sent) one->wait();
}

void Ties::drop_gradients() {
  for (Tied& one : all_)
    if (one.is_copy) one.weight.mutable_grad().reset();
}

std::vector<Tensor> Ties::copies() const {
  std::vector<Tensor> copies;
  for (const Tied& one : all_)
    if (one.is_copy) copies.push_back(one.weight);
  return copies;
}

}  // namespace headroom::train::detail

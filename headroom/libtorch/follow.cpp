#include "headroom/libtorch/follow.h"

#include <utility>

#include "headroom/libtorch/detail/carried.h"

namespace headroom::libtorch {

void follow(const at::Tensor& weight, Follower follower, std::function<void()> otherwise) {
  std::shared_ptr<const detail::Following> following;
  if (follower)
    following = std::make_shared<const detail::Following>(
        detail::Following{std::move(follower), std::move(otherwise)});
  detail::attach(weight, std::move(following), store_of(weight));
}

bool is_followed(const at::Tensor& weight) {
  const detail::Carried* const its = detail::carried(weight);
  return its != nullptr && its->following != nullptr;
}

}  // namespace headroom::libtorch

#include "headroom/libtorch/sleeper.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/libtorch/on.h"

namespace headroom::libtorch {
namespace {

using torch::Tensor;

struct Counting final : Sleeper {
  void wake() override { ++woken; }
  int woken = 0;
};

c10::intrusive_ptr<Counting> put(const Tensor& tensor) {
  auto sleeper = c10::make_intrusive<Counting>();
  put_to_sleep(tensor, sleeper);
  return sleeper;
}

TEST(Sleep, EndsWithTheFirstOperator) {
  const Tensor x = torch::rand({3});
  const auto sleeper = put(x);
  EXPECT_TRUE(sleeps(x));
  EXPECT_EQ(x.numel(), 3);
  EXPECT_EQ(sleeper->woken, 0);
  (void)x.sum();
  EXPECT_EQ(sleeper->woken, 1);
  EXPECT_FALSE(sleeps(x));
  (void)x.sum();
  EXPECT_EQ(sleeper->woken, 1);
}

TEST(Sleep, EndsForEachTensorOfAList) {
  const std::vector<Tensor> all{torch::ones({2}), torch::ones({2}), torch::ones({2})};
  const auto first = put(all[0]), third = put(all[2]);
  at::_foreach_add_(all, 1);
  EXPECT_EQ(first->woken + third->woken, 2);
  EXPECT_TRUE(torch::equal(all[2], torch::full({2}, 2.0)));
}

TEST(Sleep, IsOfTheGraphAndOfAutocastToo) {
  const Tensor w = torch::ones({2, 2}).requires_grad_();
  const auto sleeper = put(w);
  torch::matmul(w, torch::ones({2, 2})).sum().backward();
  EXPECT_EQ(sleeper->woken, 1);
  EXPECT_TRUE(torch::equal(w.grad(), torch::full({2, 2}, 2.0)));
}

TEST(Sleep, IsSharedWithAnAliasMadeWithoutAnOperator) {
  const Tensor x = torch::rand({3});
  const auto sleeper = put(x);
  const Tensor data = x.variable_data();
  EXPECT_TRUE(sleeps(data));
  (void)data.sum();
  EXPECT_EQ(sleeper->woken, 1);
  EXPECT_TRUE(sleeps(x));
}

TEST(Sleep, GoesWithDevicesOfABlock) {
  const Tensor x = torch::rand({3});
  const auto sleeper = put(x);
  const OnDeviceScope there(at::kMeta);
  EXPECT_TRUE(torch::empty({2}).is_meta());
  EXPECT_TRUE(x.add(1).is_cpu());
  EXPECT_EQ(sleeper->woken, 1);
}

TEST(Sleep, IsNotForATensorThatCarriesSomething) {
  const Tensor x = torch::rand({3});
  EXPECT_TRUE(can_sleep(x));
  const auto sleeper = put(x);
  EXPECT_FALSE(can_sleep(x));
  wake(x);
  EXPECT_EQ(sleeper->woken, 1);
  EXPECT_TRUE(can_sleep(x));
}

}  // namespace
}  // namespace headroom::libtorch

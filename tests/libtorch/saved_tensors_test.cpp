#include "headroom/libtorch/saved_tensors.h"

#include <gmock/gmock.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/torch.h>

#include "headroom/sim/simulate.h"

namespace headroom::libtorch {
namespace {

using torch::Tensor;

// The gradient of (x * x).exp().sum() for x = 0, 1, 2, and through `pack` if there is one.
Tensor gradient_at(const Tensor& x, const Pack& pack = {}) {
  Tensor leaf = x.detach().clone().requires_grad_();
  Tensor loss;
  {
    std::optional<SavedTensorScope> scope;
    if (pack) scope.emplace(pack);
    loss = (leaf * leaf).exp().sum();
  }
  loss.backward();
  return leaf.grad();
}

TEST(SavedTensorScope, HandsEverySavedTensorToPackAndBack) {
  int packed = 0, unpacked = 0;
  const Pack count = [&](const Tensor& tensor) -> Unpack {
    ++packed;
    return [&unpacked, tensor] { return ++unpacked, tensor; };
  };
  const Tensor x = torch::arange(3, torch::kFloat);
  EXPECT_TRUE(gradient_at(x, count).equal(gradient_at(x)));
  EXPECT_EQ(packed, 3);  // x twice, and the result of exp
  EXPECT_EQ(unpacked, packed);
}

TEST(SavedTensorScope, ComputesWithTheResultOfUnpack) {
  const Pack doubled = [](const Tensor& tensor) -> Unpack {
    return [twice = tensor * 2] { return twice; };
  };
  Tensor x = torch::ones({2}).requires_grad_();
  Tensor y;
  {
    const SavedTensorScope scope(doubled);
    y = x * torch::full({2}, 3.0F);  // saves the 3
  }
  y.sum().backward();
  EXPECT_TRUE(x.grad().equal(torch::full({2}, 6.0F)));
}

TEST(SavedTensorScope, GivesTensorsWithoutHistory) {
  bool with_history = false;
  const Pack look = [&](const Tensor& tensor) -> Unpack {
    with_history = with_history || tensor.requires_grad();
    return [tensor] { return tensor; };
  };
  (void)gradient_at(torch::ones({2}), look);
  EXPECT_FALSE(with_history);
}

TEST(SavedTensorScope, CountsTheInnermost) {
  std::vector<int> who;
  const auto note = [&](int number) -> Pack {
    return [&who, number](const Tensor& tensor) -> Unpack {
      who.push_back(number);
      return [tensor] { return tensor; };
    };
  };
  Tensor x = torch::ones({2}).requires_grad_();
  const SavedTensorScope outer(note(1));
  Tensor y = x.exp();
  {
    const SavedTensorScope inner(note(2));
    y = y.exp();
  }
  y = y.exp();
  EXPECT_THAT(who, ::testing::ElementsAre(1, 2, 1));
}

TEST(SavedTensorScope, SendsWhatItsPackKeepsThroughTheScopeOutside) {
  std::vector<at::ScalarType> outside;
  const SavedTensorScope outer([&](const Tensor& tensor) -> Unpack {
    outside.push_back(tensor.scalar_type());
    return [twice = tensor * 2] { return twice; };
  });
  const Pack halved = [](const Tensor& tensor) -> Unpack {
    const auto kept =
        std::make_shared<torch::autograd::SavedVariable>(tensor.to(torch::kHalf), false);
    return [kept] { return kept->unpack().to(torch::kFloat); };
  };
  Tensor x = torch::ones({2}).requires_grad_(), y;
  {
    const SavedTensorScope inner(halved);
    y = x * torch::full({2}, 3.0F);  // saves the 3
  }
  y.sum().backward();
  EXPECT_THAT(outside, ::testing::ElementsAre(torch::kHalf));
  EXPECT_TRUE(x.grad().equal(torch::full({2}, 6.0F)));
  y = x * torch::full({2}, 3.0F);
  EXPECT_THAT(outside, ::testing::ElementsAre(torch::kHalf, torch::kFloat));
}

TEST(SavedTensorScope, EndsWithItsBlockAlsoWhenThatThrows) {
  int packed = 0;
  const Pack count = [&](const Tensor& tensor) -> Unpack {
    ++packed;
    return [tensor] { return tensor; };
  };
  try {
    const SavedTensorScope scope(count);
    throw std::runtime_error("no");
  } catch (const std::runtime_error&) {
  }
  (void)gradient_at(torch::ones({2}));
  EXPECT_EQ(packed, 0);
}

TEST(SavedTensorScope, FreesTheCardOfTensorsThatItMoves) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  const auto kept_by = [&](const Pack& pack) {
    Tensor x = torch::empty({1 << 20}, box.device(0)).requires_grad_();
    std::optional<SavedTensorScope> scope;
    if (pack) scope.emplace(pack);
    const Tensor loss = x.exp().exp().exp().sum();
    return box.card(0).statistics().allocated_bytes.all.current;
  };
  const Pack away = [](const Tensor& tensor) -> Unpack {
    return [host = tensor.to(torch::kCPU), device = tensor.device()] { return host.to(device); };
  };
  const std::int64_t plain = kept_by({}), moved = kept_by(away);
  EXPECT_EQ(plain - moved, 3 * (4 << 20));
  EXPECT_EQ(box.card(0).statistics().allocated_bytes.all.current, 0);
}

TEST(SavedTensorScope, HoldsForItsThreadAlone) {
  int packed = 0;
  const SavedTensorScope scope([&](const Tensor& tensor) -> Unpack {
    ++packed;
    return [tensor] { return tensor; };
  });
  std::thread([] { (void)gradient_at(torch::ones({2})); }).join();
  EXPECT_EQ(packed, 0);
}

}  // namespace
}  // namespace headroom::libtorch

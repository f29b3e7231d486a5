#include "headroom/libtorch/stored_weight.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/libtorch/autocast.h"
#include "headroom/libtorch/follow.h"
#include "headroom/libtorch/modules.h"
#include "headroom/sim/simulate.h"
#include "tests/libtorch/computing.h"

namespace headroom::libtorch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using torch::Tensor;

// Keeps the values in half precision.
class Halves final : public Store {
 public:
  explicit Halves(Tensor values) : values_(std::move(values)) {}

  Tensor product(const Tensor& x, bool transposed, const Tensor& bias) const override {
    const Tensor weight = whole(x.scalar_type());
    const Tensor y = torch::matmul(x, transposed ? weight.t() : weight);
    return bias.defined() ? y + bias : y;
  }
  Tensor grouped_product(const Tensor& x, bool, const Tensor&) const override { return x; }
  Tensor whole(at::ScalarType type) const override { return values_.to(type, false, true); }
  void assign(const Tensor& values) override {
    const auto from = std::dynamic_pointer_cast<Halves>(store_of(values));
    values_.copy_(from ? from->values_ : values);
  }
  std::vector<Tensor> tensors() const override { return {values_}; }
  std::shared_ptr<Store> copy(c10::Device device) const override {
    return std::make_shared<Halves>(values_.to(device, values_.scalar_type(), false, true));
  }

 private:
  const Tensor values_;
};

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  NetImpl() { reset(); }
  void reset() override {
    fc = register_module("fc", torch::nn::Linear(6, 4));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
  }
  Tensor forward(const Tensor& x) { return fc(x); }
  torch::nn::Linear fc{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Net);

// With numbers that are exact in half precision.
Tensor numbers(at::IntArrayRef sizes) {
  const std::int64_t count = c10::multiply_integers(sizes);
  return torch::arange(count, torch::kFloat).remainder(11).sub(5).div(8).view(sizes);
}

void keep(const Tensor& weight) {
  keep_in(weight, std::make_shared<Halves>(weight.detach().to(torch::kHalf)));
}

Net stored_net() {
  Net net;
  const torch::NoGradGuard no_grad;
  net->fc->weight.copy_(numbers({4, 6}));
  net->fc->bias.copy_(numbers({4}));
  keep(net->fc->weight);
  return net;
}

Tensor values_of(const Tensor& weight) {
  return store_of(weight)->whole(torch::kFloat).cpu();
}

// How often operators got a whole weight while `run` ran.
std::map<std::string, std::int64_t> counted(const std::function<void()>& run) {
  std::map<std::string, std::int64_t> before = whole_weights(), more;
  run();
  for (const auto& [name, count] : whole_weights())
    if (count != before[name]) more[name] = count - before[name];
  return more;
}

TEST(StoredWeight, KeepsNameSizesTypeAndDeviceAndHasNoMemory) {
  Net net = stored_net();
  const Tensor weight = net->fc->weight;
  EXPECT_TRUE(net->named_parameters()["fc.weight"].is_same(weight));
  EXPECT_EQ(weight.sizes(), at::IntArrayRef({4, 6}));
  EXPECT_EQ(weight.scalar_type(), torch::kFloat);
  EXPECT_EQ(weight.storage().nbytes(), 0U);
  EXPECT_FALSE(weight.requires_grad());
  EXPECT_EQ(store_of(net->fc->bias), nullptr);
}

TEST(StoredWeight, ItsStoreComputesTheProducts) {
  Net net = stored_net();
  const Tensor weight = net->fc->weight, x = numbers({3, 6}), y = numbers({3, 4});
  const Tensor plain = numbers({4, 6}), bias = numbers({4}), other = numbers({6});
  const auto uses = counted([&] {
    EXPECT_TRUE(net(x).equal(torch::linear(x, plain, bias)));
    EXPECT_TRUE(net(x.view({1, 3, 6})).equal(torch::linear(x, plain, bias).view({1, 3, 4})));
    EXPECT_TRUE(torch::matmul(x, weight.t()).equal(torch::matmul(x, plain.t())));
    EXPECT_TRUE(torch::mm(x, weight.transpose(0, 1)).equal(torch::mm(x, plain.t())));
    EXPECT_TRUE(torch::matmul(y, weight).equal(torch::matmul(y, plain)));
    EXPECT_TRUE(torch::matmul(y, weight.t().t()).equal(torch::matmul(y, plain)));
    EXPECT_TRUE(torch::addmm(other, y, weight).equal(torch::addmm(other, y, plain)));
    EXPECT_TRUE(torch::linear(y, weight.t()).equal(torch::matmul(y, plain)));
  });
  EXPECT_THAT(uses, IsEmpty());
}

TEST(StoredWeight, ComputesInAutocastsType) {
  Net net = stored_net();
  const AutocastScope scope(torch::kCPU, torch::kBFloat16);
  EXPECT_EQ(torch::linear(numbers({3, 6}), net->fc->weight).scalar_type(), torch::kBFloat16);
}

TEST(StoredWeight, OtherOperatorsGetTheWholeWeightAndAreCountedByName) {
  const Tensor weight = stored_net()->fc->weight, plain = numbers({4, 6});
  const auto uses = counted([&] {
    EXPECT_TRUE(weight.sum().equal(plain.sum()));
    EXPECT_TRUE(weight.t().sum(1).equal(plain.t().sum(1)));
    EXPECT_TRUE(torch::cat({weight, weight}).equal(torch::cat({plain, plain})));
    EXPECT_TRUE(torch::addmm(torch::ones({3, 6}), numbers({3, 4}), weight, 2, 1)
                    .equal(torch::addmm(torch::ones({3, 6}), numbers({3, 4}), plain, 2, 1)));
  });
  EXPECT_THAT(uses,
              ElementsAre(Pair("aten::addmm", 1), Pair("aten::cat", 2), Pair("aten::sum", 2)));
}

TEST(StoredWeight, OperatorsThatNeedNoValuesGetNone) {
  const Tensor weight = stored_net()->fc->weight;
  const auto uses = counted([&] {
    EXPECT_TRUE(torch::zeros_like(weight).equal(torch::zeros({4, 6})));
    EXPECT_EQ(torch::empty_like(weight).storage().nbytes(), 96U);
    EXPECT_EQ(weight.new_zeros({2}).sizes(), at::IntArrayRef({2}));
    EXPECT_EQ(weight.size(1), 6);
    EXPECT_TRUE(values_of(weight.detach()).equal(numbers({4, 6})));
  });
  EXPECT_THAT(uses, IsEmpty());
}

TEST(StoredWeight, CopiesGoThroughTheStore) {
  const torch::NoGradGuard no_grad;
  const Tensor weight = stored_net()->fc->weight, other = stored_net()->fc->weight;
  weight.copy_(torch::full({4, 6}, 2.0));
  EXPECT_TRUE(values_of(weight).equal(torch::full({4, 6}, 2.0)));
  Tensor plain = torch::empty({4, 6});
  plain.copy_(weight);
  EXPECT_TRUE(plain.equal(torch::full({4, 6}, 2.0)));
  weight.copy_(other);
  EXPECT_TRUE(values_of(weight).equal(numbers({4, 6})));
  weight.t().copy_(torch::ones({6, 4}));
  EXPECT_TRUE(values_of(weight).equal(torch::ones({4, 6})));
}

TEST(StoredWeight, InPlaceOperatorsWriteIntoTheStore) {
  const torch::NoGradGuard no_grad;
  const Tensor weight = stored_net()->fc->weight;
  EXPECT_TRUE(weight.mul_(2).is_same(weight));
  EXPECT_TRUE(values_of(weight).equal(numbers({4, 6}) * 2));
  torch::nn::init::constant_(weight, 3);
  EXPECT_TRUE(values_of(weight).equal(torch::full({4, 6}, 3.0)));
}

TEST(StoredWeight, ToAnotherTypeChangesTheNominalType) {
  Net net = stored_net();
  const Tensor weight = net->fc->weight, bytes = store_of(weight)->tensors().front();
  net->to(torch::kDouble);
  EXPECT_EQ(weight.scalar_type(), torch::kDouble);
  EXPECT_EQ(weight.storage().nbytes(), 0U);
  EXPECT_TRUE(store_of(weight)->tensors().front().equal(bytes));
  EXPECT_EQ(weight.sum().scalar_type(), torch::kDouble);
}

TEST(StoredWeight, MovesWithItsModule) {
  const sim::Simulation box = computing("1x1GiB");
  Net net = stored_net();
  const Tensor before = net(numbers({3, 6}));
  const auto expect_on = [&](c10::Device device) {
    for (const auto& [name, tensor] : tensors_of(*net)) EXPECT_EQ(tensor.device(), device) << name;
    EXPECT_EQ(net->fc->weight.device(), device);
    EXPECT_TRUE(net(numbers({3, 6}).to(device)).cpu().equal(before));
  };
  move(*net, box.device(0));
  expect_on(box.device(0));
  net->to(torch::kCPU);
  expect_on(torch::kCPU);
  net->to(box.device(0));
  expect_on(box.device(0));
  move(*net, torch::kCPU);
  expect_on(torch::kCPU);
  net->to(box.device(0), torch::kFloat);
  expect_on(box.device(0));
}

TEST(StoredWeight, MovesAllOrNothing) {
  const sim::Simulation box = computing("1x8MiB");
  torch::nn::Sequential net(torch::nn::Linear(8, 8), torch::nn::Linear(2048, 4096));
  for (const std::size_t i : {0, 1}) keep(net[i]->named_parameters()["weight"]);
  EXPECT_ANY_THROW(move(*net, box.device(0)));
  for (const auto& [name, tensor] : tensors_of(*net)) EXPECT_TRUE(tensor.is_cpu()) << name;
  EXPECT_TRUE(net[0]->named_parameters()["weight"].is_cpu());
}

TEST(StoredWeight, AnEmptyCopyOfAModuleHasEmptyStores) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  Net net = stored_net();
  move_shapes(*net, box.device(0));
  EXPECT_EQ(store_of(net->fc->weight)->tensors().front().device(), box.device(0));
}

TEST(StoredWeight, ACloneHasAStoreOfItsOwn) {
  const sim::Simulation box = computing("1x1GiB");
  Net net = stored_net();
  for (const c10::Device device : {c10::Device(torch::kCPU), box.device(0)}) {
    const auto twin = clone(*net, device);
    EXPECT_EQ(twin->fc->weight.storage().nbytes(), 0U);
    EXPECT_EQ(store_of(twin->fc->weight)->tensors().front().device(), device);
    torch::NoGradGuard no_grad;
    twin->fc->weight.fill_(7);
    EXPECT_TRUE(values_of(net->fc->weight).equal(numbers({4, 6})));
  }
}

TEST(StoredWeight, HasAFollowerOnTop) {
  const sim::Simulation box = computing("1x1GiB");
  Net net = stored_net();
  const Tensor x = numbers({3, 6}), before = net(x);
  follow(net->fc->weight, [](const Use& use, const Tensor& result) {
    return result + use.again(use.input, torch::ones({4, 6}, use.input.options()));
  });
  const Tensor followed = before + x.sum(1, true);
  EXPECT_TRUE(net(x).allclose(followed));
  net->to(box.device(0));
  EXPECT_TRUE(net(x.to(box.device(0))).cpu().allclose(followed));
  keep_in(net->fc->weight, store_of(net->fc->weight)->copy(box.device(0)));
  EXPECT_TRUE(is_followed(net->fc->weight));
  follow(net->fc->weight, {});
  EXPECT_TRUE(net(x.to(box.device(0))).cpu().equal(before));
}

TEST(StoredWeight, GetsPlainMemoryBack) {
  Net net = stored_net();
  net->fc->weight.set_data(numbers({4, 6}));
  EXPECT_EQ(store_of(net->fc->weight), nullptr);
  EXPECT_TRUE(net->fc->weight.equal(numbers({4, 6})));
  keep(net->fc->weight);
  keep_in(net->fc->weight, nullptr);
  EXPECT_EQ(store_of(net->fc->weight), nullptr);
  EXPECT_EQ(net->fc->weight.storage().nbytes(), 96U);
}

TEST(StoredWeight, ListsOfAModulesTensorsNameThoseOfItsStore) {
  Net net = stored_net();
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_of(*net)) names.push_back(name);
  EXPECT_THAT(names,
              ElementsAre("fc.weight:0", "fc.bias", "norm.weight", "norm.bias", "norm.running_mean",
                          "norm.running_var", "norm.num_batches_tracked"));
}

}  // namespace
}  // namespace headroom::libtorch

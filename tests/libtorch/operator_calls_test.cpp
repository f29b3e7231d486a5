#include "headroom/libtorch/operator_calls.h"

#include <ATen/core/ivalue.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <mutex>
#include <set>
#include <stdexcept>
#include <string>

namespace headroom::libtorch {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using torch::Tensor;

struct Names final : CallObserver {
  std::mutex mutex;
  std::vector<std::string> all;
  void on_call(OperatorCall& call) override {
    {
      const std::lock_guard lock(mutex);
      all.emplace_back(call.name());
    }
    call.run();
  }
};

TEST(OperatorCalls, AreThoseOfTheCodeItself) {
  const Tensor x = torch::ones({2, 2}), w = torch::ones({2, 2});
  Names names;
  {
    const CallScope scope(names, CallScope::Of::all);
    static_cast<void>(torch::linear(x, w).add_(1));
  }
  static_cast<void>(x.exp());
  EXPECT_THAT(names.all, ElementsAre("aten::linear", "aten::add_"));
}

TEST(OperatorCalls, CanBeOnlyThoseThatWrite) {
  Tensor x = torch::ones({2, 2});
  Names names;
  {
    const CallScope scope(names, CallScope::Of::writing);
    static_cast<void>(x.exp());
    x.mul_(2);
    torch::add_out(x, x, x);
  }
  EXPECT_THAT(names.all, ElementsAre("aten::mul_", "aten::add"));
}

TEST(OperatorCalls, InAnUnseenScopeAreNotSeen) {
  const Tensor x = torch::ones({2, 2});
  Names names;
  for (const auto which : {CallScope::Of::all, CallScope::Of::writing}) {
    const CallScope scope(names, which);
    {
      const UnseenScope unseen;
      x.mul_(2);
    }
    x.add_(1);
  }
  EXPECT_THAT(names.all, ElementsAre("aten::add_", "aten::add_"));
}

TEST(OperatorCalls, AreSeenInABackwardPass) {
  const Tensor x = torch::ones({2}, torch::requires_grad());
  Names names;
  const Tensor y = x.exp();
  y.register_hook([](const Tensor& gradient) { return gradient.sinh(); });
  const CallScope scope(names, CallScope::Of::all);
  y.sum().backward();
  EXPECT_THAT(names.all, Contains("aten::sinh"));
}

TEST(OperatorCalls, NameTheTensorsThatAreWritten) {
  struct Written final : CallObserver {
    std::set<const c10::TensorImpl*> all;
    void on_call(OperatorCall& call) override {
      call.for_each_written(
          [&](const Tensor& tensor) { all.insert(tensor.unsafeGetTensorImpl()); });
      call.run();
    }
  };
  for (const auto which : {CallScope::Of::all, CallScope::Of::writing}) {
    Written written;
    torch::nn::BatchNorm1d norm(2);
    const Tensor x = torch::randn({3, 2}), y = torch::randn({3, 2});
    const CallScope scope(written, which);
    x.add_(y);
    static_cast<void>(norm(x));
    const auto has = [&](const Tensor& tensor) {
      return written.all.contains(tensor.unsafeGetTensorImpl());
    };
    EXPECT_TRUE(has(x) && has(norm->running_mean) && has(norm->running_var));
    EXPECT_TRUE(has(norm->num_batches_tracked));
    EXPECT_FALSE(has(y) || has(norm->weight));
  }
}

TEST(OperatorCalls, EndWithWhatAnObserverThrows) {
  struct Refuse final : CallObserver {
    void on_call(OperatorCall& call) override { throw std::runtime_error(call.name()); }
  } refuse;
  const Tensor x = torch::ones({2});
  {
    const CallScope scope(refuse, CallScope::Of::writing);
    EXPECT_THROW(x.add_(1), std::runtime_error);
  }
  EXPECT_TRUE(torch::equal(x, torch::ones({2})));
}

TEST(OperatorCalls, CanGetOtherArguments) {
  struct Twos final : CallObserver {
    void on_call(OperatorCall& call) override {
      call.argument(0) = torch::full({2}, 2.F);
      call.run();
    }
  } twos;
  const Tensor x = torch::ones({2}), y = [&] {
    const CallScope scope(twos, CallScope::Of::all);
    return x.square();
  }();
  EXPECT_TRUE(torch::equal(y, torch::full({2}, 4.F)));
}

TEST(OperatorCalls, OfScopesInsideGoToTheOuterObserverFirst) {
  Names outer, inner;
  const Tensor x = torch::ones({2});
  {
    const CallScope around(outer, CallScope::Of::writing);
    {
      const CallScope within(inner, CallScope::Of::all);
      static_cast<void>(x.exp());
    }
    x.add_(1);
    static_cast<void>(x.exp());
  }
  EXPECT_THAT(inner.all, ElementsAre("aten::exp"));
  EXPECT_THAT(outer.all, ElementsAre("aten::exp", "aten::add_"));
}

}  // namespace
}  // namespace headroom::libtorch

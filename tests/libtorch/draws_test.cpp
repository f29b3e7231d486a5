#include "headroom/libtorch/draws.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "headroom/sim/simulate.h"

namespace headroom::libtorch {
namespace {

using torch::Tensor;

Tensor drawn(Draws& draws, const char* name, c10::Device device) {
  draws.begin(name);
  return torch::randn({5}, device).cpu();
}

TEST(Draws, DependOnTheNameAndNotOnTheOrder) {
  const auto box = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  for (const c10::Device device : {c10::Device(at::kCPU), box.device(0)}) {
    const auto seed = [&](std::uint64_t to) {
      at::Generator(at::globalContext().defaultGenerator(device)).set_current_seed(to);
    };
    seed(1);
    Tensor a, b, after;
    {
      Draws draws(device);
      a = drawn(draws, "a", device);
      b = drawn(draws, "b", device);
      EXPECT_TRUE(a.equal(drawn(draws, "a", device)));
    }
    after = torch::randn({5}, device).cpu();
    EXPECT_FALSE(a.equal(b));
    seed(1);
    {
      Draws draws(device);
      EXPECT_TRUE(b.equal(drawn(draws, "b", device)));
      EXPECT_TRUE(a.equal(drawn(draws, "a", device)));
    }
    EXPECT_TRUE(after.equal(torch::randn({5}, device).cpu()));
    Draws later(device);
    EXPECT_FALSE(a.equal(drawn(later, "a", device)));
    seed(2);
    Draws other(device);
    EXPECT_FALSE(a.equal(drawn(other, "a", device)));
  }
}

TEST(Draws, LeaveMetaAlone) {
  Draws draws(at::kMeta);
  draws.begin("a");
}

}  // namespace
}  // namespace headroom::libtorch

#include "headroom/optim/clip.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "tests/optim/figures.h"

namespace headroom::optim {
namespace {

double order_of(const nlohmann::json& one) {
  return one.at("order") == "inf" ? std::numeric_limits<double>::infinity()
                                  : one.at("order").get<double>();
}

TEST(ClipGradients, GivesPythonsNormAndGradients) {
  for (const nlohmann::json& one : figures().at("clipped"))
    for (const bool foreach : {true, false}) {
      const std::vector<at::Tensor> parameters = start(at::kFloat);
      set_gradients(parameters, 0);
      const at::Tensor norm = clip_gradients(parameters, one.at("longest"),
                                             {.order = order_of(one), .foreach = foreach});
      EXPECT_NEAR(norm.item<double>(), one.at("norm"), 1e-6);
      for (std::size_t i = 0; i < parameters.size(); ++i)
        expect_equal(parameters[i].grad(), one.at("gradients").at(i));
    }
}

TEST(ClipGradients, OfNoGradientIsZero) {
  EXPECT_EQ(clip_gradients(start(at::kFloat), 1.0).item<double>(), 0);
}

TEST(ClipGradients, RefusesANormThatIsNoNumberIfAsked) {
  const std::vector<at::Tensor> parameters = start(at::kFloat);
  set_gradients(parameters, 0);
  parameters[1].mutable_grad()[2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(clip_gradients(parameters, 1.0, {.refuse_non_finite = true}), InputError);
  EXPECT_NO_THROW(clip_gradients(parameters, 1.0));
}

TEST(ClipGradients, RefusesANegativeNorm) {
  for (const double norm : {-1.0, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THROW(clip_gradients(start(at::kFloat), norm), UsageError);
}

TEST(ClipGradients, ByValueLimitsEachElement) {
  for (const bool foreach : {false, true}) {
    const std::vector<at::Tensor> parameters = start(at::kFloat);
    set_gradients(parameters, 0);
    std::vector<at::Tensor> expected;
    for (const at::Tensor& one : parameters) expected.push_back(one.grad().clamp(-0.1, 0.1));
    clip_gradients_by_value(parameters, 0.1, foreach);
    for (std::size_t i = 0; i < parameters.size(); ++i)
      EXPECT_TRUE(at::equal(parameters[i].grad(), expected[i]));
  }
  EXPECT_THROW(clip_gradients_by_value({}, 0), UsageError);
}

}  // namespace
}  // namespace headroom::optim

// Gradients against central finite differences, in double: C++ has no torch.autograd.gradcheck.
//
//   const Tensor x = torch::rand({3, 4}, torch::dtype(torch::kDouble).device(device));
//   EXPECT_EQ(gradcheck([&] { return torch::tanh(x); }, {x}), "");
//
// The function is called again and again while one number after the other of `inputs` (arguments
// and parameters alike, contiguous leaves of type double) is moved a little, in place. It must give
// the same result for the same inputs. What is compared is the gradient of the result's sum with
// fixed, uneven weights, so that errors of one element cannot hide behind another's.
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace headroom::nets {

struct GradcheckOptions {
  double step = 1e-6;
  double relative = 1e-5;
  double absolute = 1e-7;
};

namespace detail {

using torch::Tensor;

inline Tensor weighted_sum(const Tensor& result) {
  const Tensor flat = result.reshape(-1);
  const Tensor weights =
      torch::arange(1, flat.numel() + 1, torch::dtype(torch::kDouble)).sin().to(flat.device());
  return (flat * weights).sum();
}

inline double moved(const std::function<Tensor()>& function, const Tensor& number, double by) {
  const torch::NoGradGuard no_grad;
  const Tensor before = number.clone();
  number.add_(by);
  const double value = weighted_sum(function()).item<double>();
  number.copy_(before);
  return value;
}

}  // namespace detail

// "" or the first number whose gradient is wrong.
inline std::string gradcheck(const std::function<torch::Tensor()>& function,
                             const std::vector<torch::Tensor>& inputs,
                             const GradcheckOptions& options = {}) {
  for (const torch::Tensor& input : inputs) {
    TORCH_CHECK(input.scalar_type() == torch::kDouble && input.is_contiguous() && input.is_leaf(),
                "[gradcheck] expected contiguous leaves of type double, received ",
                input.toString());
    torch::Tensor(input).set_requires_grad(true);
  }
  const std::vector<torch::Tensor> gradients =
      torch::autograd::grad({detail::weighted_sum(function())}, inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const torch::Tensor flat = inputs[i].detach().view(-1);
    const torch::Tensor analytic = gradients[i].detach().cpu().reshape(-1);
    for (std::int64_t j = 0; j < flat.numel(); ++j) {
      const torch::Tensor number = flat.slice(0, j, j + 1);
      const double numeric = (detail::moved(function, number, options.step) -
                              detail::moved(function, number, -options.step)) /
                             (2 * options.step);
      const double ours = analytic[j].item<double>();
      if (std::abs(ours - numeric) <= options.absolute + options.relative * std::abs(numeric))
        continue;
      std::ostringstream text;
      text << "input " << i << ", number " << j << ": gradient " << ours
           << ", by finite differences " << numeric;
      return text.str();
    }
  }
  return "";
}

}  // namespace headroom::nets

// A case: one module class, functional or optimizer of LibTorch, with some options, and the limits
// of what a test may expect (limits.cpp). The tables beside this file contain them, a line or two
// each:
//
//   {"Conv2d", "in groups",
//    [](Trial& t) { return t.forward<nn::Conv2d>(nn::Conv2dOptions(4, 6, 3).groups(2), t.x({2, 4,
//    9, 9})); }},
//
// The program builds what it needs, runs forward and gives its results; backward, from random
// cotangents, is the harness's (run.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trial.h"

namespace headroom::coverage {

// Each is a reason, for the page in docs/reference that is made of them; empty: none.
struct Limits {
  std::string fp32_only;      // not on CUDA in bf16, or not meant for it
  std::string no_bf16_cpu;    // CUDA has one, the CPU not: nothing to compare the values with
  std::string not_exact;      // the values are not those of the CPU's run
  std::string reads_values;   // goes by values: without data it runs, but another way
  std::string refused;        // without data, unless the whole numbers it goes by are known
  std::string not_simulated;  // runs in neither mode
};

struct Case {
  std::string covers;   // as in the headers: "Conv2d", "F::conv2d", "utils::clip_grad_norm_"
  std::string variant;  // "in groups"; empty: as most people use it
  std::function<Outputs(Trial&)> program;
  Limits limits = {};
};

using Cases = std::vector<Case>;

// The tables.
[[nodiscard]] Cases activation_cases();
[[nodiscard]] Cases container_cases();
[[nodiscard]] Cases convolution_cases();
[[nodiscard]] Cases embedding_cases();
[[nodiscard]] Cases functional_activation_cases();
[[nodiscard]] Cases functional_cases();
[[nodiscard]] Cases functional_image_cases();
[[nodiscard]] Cases functional_loss_cases();
[[nodiscard]] Cases linear_cases();
[[nodiscard]] Cases loss_cases();
[[nodiscard]] Cases mixed_precision_cases();
[[nodiscard]] Cases normalisation_cases();
[[nodiscard]] Cases operator_cases();
[[nodiscard]] Cases optimizer_cases();
[[nodiscard]] Cases padding_cases();
[[nodiscard]] Cases pooling_cases();
[[nodiscard]] Cases recurrent_cases();
[[nodiscard]] Cases transformer_cases();
[[nodiscard]] Cases utility_cases();

// Which of them have limits, in limits.cpp.
void add_limits(Cases& cases);

// All of them, with their limits; made at the first call.
[[nodiscard]] const Cases& all_cases();

// "Conv2d_in_groups", for the name of a test.
[[nodiscard]] std::string identifier(const Case& one);

}  // namespace headroom::coverage

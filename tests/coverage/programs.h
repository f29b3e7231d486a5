// The programs most cases have: a module on one input.
#pragma once

#include <vector>

#include "case.h"

namespace headroom::coverage {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

using Sizes = std::vector<std::int64_t>;
using Program = std::function<Outputs(Trial&)>;

template <typename Module, typename... Options>
Program on_x(Sizes sizes, Options... options) {
  return [=](Trial& t) -> Outputs {
    Module module = t.build<Module>(options...);
    return module->forward(t.x(sizes));
  };
}

// The input is not the caller's: the module may write into it.
template <typename Module, typename... Options>
Program in_place(Sizes sizes, Options... options) {
  return [=](Trial& t) -> Outputs {
    Module module = t.build<Module>(options...);
    return module->forward(t.inner(sizes));
  };
}

template <typename Module, typename... Options>
Program evaluating(Sizes sizes, Options... options) {
  return [=](Trial& t) -> Outputs {
    Module module = t.build<Module>(options...);
    module->eval();
    return module->forward(t.x(sizes));
  };
}

// A loss between an input and a target of the same shape.
template <typename Module, typename... Options>
Program to_target(Sizes sizes, Options... options) {
  return [=](Trial& t) -> Outputs {
    Module module = t.build<Module>(options...);
    const Tensor input = t.x(sizes);
    return module->forward(input, t.x(sizes));
  };
}

}  // namespace headroom::coverage

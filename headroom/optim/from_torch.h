// Takes over an optimizer of torch::optim: its parameters and groups, the options of each group,
// and the states that it has so far. A training of months goes on with train::Step:
//
//   torch::optim::AdamW theirs(net->parameters(), 1e-4);
//   torch::load(theirs, "optimizer.pt");
//   const auto optimizer = optim::from_torch(theirs);
//   train::Step step(*net, *optimizer, objective);
//
// AdamW, Adam, SGD and RMSprop can be taken over. Adagrad and LBFGS have no counterpart.
//
// A step computes the same as theirs. SGD in the loop form and RMSprop without `centered` give the
// same bits; the others round in another order, by 1e-6 of the values in float after a few steps.
//
// The states are the same tensors and no copies, so they take no memory: `theirs` must not step
// afterwards. Learning rates are those of now; a torch::optim scheduler goes on changing `theirs`,
// so use StepOptions::schedule.
#pragma once

#include <memory>

#include "headroom/optim/optimizer.h"

namespace torch::optim {
class Optimizer;
}

namespace headroom::optim {

// RMSprop has no fused form, and gets the form foreach instead. Throws UsageError for another
// class, and for options that the functions of optimizer.h refuse.
[[nodiscard]] std::unique_ptr<Optimizer> from_torch(const torch::optim::Optimizer& theirs,
                                                    OptimizerForm form = OptimizerForm::fused);

}  // namespace headroom::optim

#!/usr/bin/env bash
# torch_optimizer.sh SOURCE TORCH: a program that gives an optimizer of torch::optim to a step does not
# compile, and the error names the way out. Once it was "no known conversion".
set -euo pipefail
source=$1 torch=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/main.cpp" <<'CODE'
namespace torch::optim {
class Optimizer {};
class AdamW : public Optimizer {};
}  // namespace torch::optim
#include <headroom/train/step.h>
namespace torch::nn {
class Module {};
}  // namespace torch::nn
void train(torch::nn::Module& net, OPTIMIZER& optimizer) {
  headroom::train::Step step(net, optimizer, {[](auto& rows) { return rows[0]; }});
}
CODE
compile() {
  "${CXX:-c++}" -std=c++20 -fsyntax-only -I"$source" -isystem "$torch/include" "-DOPTIMIZER=$1" \
    "$work/main.cpp" > "$work/log" 2>&1
}
compile headroom::optim::Optimizer || { cat "$work/log"; exit 1; }
if compile torch::optim::AdamW; then echo "it compiled"; exit 1; fi
grep -q 'train::Step takes an optimizer of headroom::optim' "$work/log" || { cat "$work/log"; exit 1; }
grep -q 'optim::from_torch(optimizer)' "$work/log"

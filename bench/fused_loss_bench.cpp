// Head and cross entropy over a large vocabulary: the plain loss, in chunks and fused, forward and
// backward, in turns in one process on the CPU. Prints medians and the ratio to the plain one.
//
//   bench_fused_loss [rows] [classes] [width] [runs]     default 512 32064 2048 5
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "bench/measure.h"
#include "headroom/nn/chunked_loss.h"
#include "headroom/nn/fused_loss.h"

namespace {

using namespace headroom;
using torch::Tensor;

void compare(torch::Dtype type, std::int64_t rows, std::int64_t classes, std::int64_t width,
             int runs) {
  const Tensor weight = torch::randn({classes, width}).mul_(0.02).to(type).requires_grad_();
  const Tensor states = torch::randn({rows, width}).to(type).requires_grad_();
  const Tensor labels = torch::randint(classes, {rows});
  const auto head = [&](const Tensor& x) { return torch::linear(x, weight); };
  const std::vector<std::function<Tensor()>> losses = {
      [&] { return at::cross_entropy_loss(head(states), labels); },
      [&] { return nn::chunked_cross_entropy(head, states, labels, {.tokens = (rows + 3) / 4}); },
      [&] { return nn::fused_cross_entropy({.weight = weight}, states, labels); }};
  std::vector<std::vector<double>> seconds(losses.size());
  for (int run = 0; run <= runs; ++run)
    for (std::size_t i = 0; i < losses.size(); ++i) {
      const Clock::time_point begin = Clock::now();
      losses[i]().backward();
      if (run > 0) seconds[i].push_back(bench::seconds_since(begin));
      weight.mutable_grad().reset();
      states.mutable_grad().reset();
    }
  const double plain = bench::median(seconds[0]);
  const char* const names[] = {"plain", "chunked", "fused"};
  for (std::size_t i = 0; i < losses.size(); ++i)
    std::printf("%-9s %-8s %8.3f s  %.2f of plain\n", torch::toString(type), names[i],
                bench::median(seconds[i]), bench::median(seconds[i]) / plain);
}

}  // namespace

int main(int argc, char** argv) {
  const auto given = [&](int i, long usual) { return argc > i ? std::atol(argv[i]) : usual; };
  const std::int64_t rows = given(1, 512), classes = given(2, 32064), width = given(3, 2048);
  const int runs = static_cast<int>(given(4, 5));
  std::printf("%ld rows, %ld classes, width %ld, %d threads, medians of %d\n",
              static_cast<long>(rows), static_cast<long>(classes), static_cast<long>(width),
              at::get_num_threads(), runs);
  compare(torch::kFloat, rows, classes, width, runs);
  compare(torch::kBFloat16, rows, classes, width, runs);
}

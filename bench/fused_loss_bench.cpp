// Head and cross entropy over a large vocabulary: the plain loss beside the fused one, forward and
// backward, in turns in one process on the CPU. Prints the medians of wall time and of the
// process's processor time, each with the median ratio of neighbouring runs, and the memory beside
// states, weight and their gradients, as a card without data counts it. On a machine that has other
// work take one thread and the processor time.
//
//   OMP_NUM_THREADS=1 bench_fused_loss [rows] [classes] [width] [runs] [type]
//
// By default 512 rows, 32064 classes, width 2048, 5 runs, and both float and bfloat16.
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "headroom/nn/fused_loss.h"
#include "headroom/sim/simulate.h"

namespace {

using namespace headroom;
using torch::Tensor;

struct Head {
  Head(std::int64_t rows, std::int64_t classes, std::int64_t width, torch::TensorOptions options)
      : weight(torch::randn({classes, width}, options).mul_(0.02).requires_grad_()),
        states(torch::randn({rows, width}, options).requires_grad_()),
        labels(torch::randint(classes, {rows}, options.dtype(torch::kLong))) {}

  void step(bool fused) {
    if (fused)
      nn::fused_cross_entropy({.weight = weight}, states, labels).backward();
    else
      at::cross_entropy_loss(torch::linear(states, weight), labels).backward();
    weight.mutable_grad().reset();
    states.mutable_grad().reset();
  }

  Tensor weight, states, labels;
};

struct Times {
  std::vector<double> plain, fused, ratios;

  void print(const char* what) const {
    std::printf("  %-14s plain %8.3f s  fused %8.3f s  ratio %.3f\n", what, bench::median(plain),
                bench::median(fused), bench::median(ratios));
  }
};

double processor_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

// The peak beside states, weight and their gradients.
double mib_beside(Head& head, sim::Card& card, bool fused) {
  const std::int64_t before = card.statistics().requested_bytes.all.current;
  card.reset_peaks();
  head.step(fused);
  const auto gradients = static_cast<std::int64_t>(head.weight.nbytes() + head.states.nbytes());
  const std::int64_t peak = card.statistics().requested_bytes.all.peak - before - gradients;
  return static_cast<double>(peak) / (1 << 20);
}

void compare(torch::Dtype type, std::int64_t rows, std::int64_t classes, std::int64_t width,
             int runs) {
  std::printf("%s\n", torch::toString(type));
  Head head(rows, classes, width, type);
  Times wall, processor;
  for (int run = 0; run <= runs; ++run)
    for (const bool fused : {false, true}) {
      const Clock::time_point begin = Clock::now();
      const double before = processor_seconds();
      head.step(fused);
      if (run == 0) continue;
      (fused ? processor.fused : processor.plain).push_back(processor_seconds() - before);
      (fused ? wall.fused : wall.plain).push_back(bench::seconds_since(begin));
    }
  for (Times* const times : {&wall, &processor})
    for (std::size_t i = 0; i < times->plain.size(); ++i)
      times->ratios.push_back(times->fused[i] / times->plain[i]);
  wall.print("wall time");
  processor.print("processor time");

  const sim::Simulation box = sim::simulate("1x200GiB", {.cublas_workspaces = false});
  Head on_card(rows, classes, width, torch::dtype(type).device(box.device(0)));
  const double plain = mib_beside(on_card, box.card(0), false);
  const double fused = mib_beside(on_card, box.card(0), true);
  std::printf("  %-14s plain %8.1f MiB fused %7.1f MiB ratio %.3f\n", "memory", plain, fused,
              fused / plain);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Arguments given(argc, argv);
  const std::int64_t rows = given(1, 512), classes = given(2, 32064), width = given(3, 2048);
  const int runs = static_cast<int>(given(4, 5));
  std::printf("%ld rows, %ld classes, width %ld, %d threads, medians of %d\n",
              static_cast<long>(rows), static_cast<long>(classes), static_cast<long>(width),
              at::get_num_threads(), runs);
  const std::string type = argc > 5 ? argv[5] : "";
  if (type != "bfloat16") compare(torch::kFloat, rows, classes, width, runs);
  if (type != "float") compare(torch::kBFloat16, rows, classes, width, runs);
}

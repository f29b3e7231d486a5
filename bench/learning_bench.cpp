// Learning with numbers of fewer bits: a small GPT on structured text, trained in float32 and in
// each other way from the same weights on the same batches. Prints the mean of the last tenth of
// the losses beside float32's.
//
//   bench_learning [steps] [seeds]     default 1000 3
#include <cstdio>
#include <vector>

#include "bench/measure.h"
#include "tests/optim/small_gpt.h"

namespace {

using namespace headroom;
using Tensors = std::vector<torch::Tensor>;
using optim::Rounding;

struct Way {
  const char* name;
  at::ScalarType type;
  small_gpt::MakeOptimizer make;
};

optim::AdamWOptions adamw(Rounding rounding, std::uint64_t seed) {
  return {.form = optim::OptimizerForm::fused, .rounding = rounding, .seed = seed};
}

const std::vector<Way> kWays{
    {"float32", at::kFloat,
     [](const Tensors& of, std::uint64_t seed) {
       return optim::make_adamw(of, adamw(Rounding::nearest, seed));
     }},
    {"8-bit states", at::kFloat,
     [](const Tensors& of, std::uint64_t) { return optim::make_compact_adamw(of); }},
    {"4-bit states", at::kFloat,
     [](const Tensors& of, std::uint64_t) { return optim::make_compact_adamw(of, {.bits = 4}); }},
    {"bf16, stochastic", at::kBFloat16,
     [](const Tensors& of, std::uint64_t seed) {
       return optim::make_adamw(of, adamw(Rounding::stochastic, seed));
     }},
    {"bf16, 8-bit, stochastic", at::kBFloat16,
     [](const Tensors& of, std::uint64_t seed) {
       return optim::make_compact_adamw(of, {.rounding = Rounding::stochastic, .seed = seed});
     }},
    {"bf16, nearest", at::kBFloat16, [](const Tensors& of, std::uint64_t seed) {
       return optim::make_adamw(of, adamw(Rounding::nearest, seed));
     }}};

}  // namespace

int main(int argc, char** argv) {
  const bench::Arguments given(argc, argv);
  const long steps = given(1, 1000), seeds = given(2, 3);
  std::printf("a GPT of 2 layers and width 64, %ld steps, %ld seeds: mean of the last %ld losses\n",
              steps, seeds, steps / 10);
  double usual = 0;
  for (const Way& way : kWays) {
    double first = 0, last = 0;
    for (long seed = 1; seed <= seeds; ++seed) {
      const auto losses =
          small_gpt::train(way.type, way.make, steps, static_cast<std::uint64_t>(seed));
      first += losses.front() / static_cast<double>(seeds);
      last += small_gpt::last_of(losses) / static_cast<double>(seeds);
    }
    if (usual == 0) usual = last;
    std::printf("  %-24s %.4f  %+6.2f %% of float32, %.0f %% of the first loss\n", way.name, last,
                100 * (last / usual - 1), 100 * last / first);
    std::fflush(stdout);
  }
}

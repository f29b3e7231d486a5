// A training step of a transformer (Llama's layers) on the CPU, without checkpointing and with it,
// in turns in one process. Prints what is kept between forward and backward pass, and medians of a
// step with AdamW, each with its ratio to the plain step.
//
//   bench_checkpoint [layers] [width] [rows] [length] [runs]     default 12 512 4 256 5
#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/small_llama.h"
#include "headroom/memory/count_cpu.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/models/batch.h"
#include "headroom/models/initialise.h"
#include "headroom/models/model.h"
#include "headroom/optim/optimizer.h"

namespace {

using namespace headroom;
using models::Checkpointing;
using nn::Recompute;

struct Way {
  const char* name;
  Checkpointing checkpointing;
  double kept_mib = 0;
  std::vector<double> seconds = {};
};

double allocated_mib() {
  return memory::get_gpu_memory_stats(at::kCPU).allocated.mib();
}

std::string processor() {
  std::string name = "unknown processor";
  if (std::FILE* file = std::fopen("/proc/cpuinfo", "r")) {
    char line[256], text[200];
    while (std::fgets(line, sizeof line, file) != nullptr)
      if (std::sscanf(line, "model name : %199[^\n]", text) == 1) name = text;
    std::fclose(file);
  }
  return name;
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Arguments given(argc, argv);
  const long layers = given(1, 12), width = given(2, 512), rows = given(3, 4),
             length = given(4, 256), runs = given(5, 5);
  const Json config = bench::small_llama(layers, width, length);
  const auto model = models::build({config, "the benchmark's config"});
  models::initialise(*model);
  model->train();
  const models::Batch batch =
      models::random_batch(*model, {.rows = rows, .length = length}, at::kCPU);
  const auto adamw = optim::make_adamw(model->module().parameters());
  std::printf("%s, %d threads\n", processor().c_str(), at::get_num_threads());
  std::printf("%ld layers, width %ld, %ld x %ld tokens, float32, AdamW; medians of %ld steps\n",
              layers, width, rows, length, runs);

  std::vector<Way> ways = {
      {"plain", {}},
      {"every layer", {.how = Recompute::nonreentrant}},
      {"every layer, reentrant", {.how = Recompute::reentrant}},
      {"every second layer", {.how = Recompute::nonreentrant, .every = 2}},
      {"all but attention", {.how = Recompute::nonreentrant, .but_attention = true}}};
  for (long run = 0; run <= runs; ++run)
    for (Way& way : ways) {
      model->set_checkpointing(way.checkpointing);
      if (run == 0) {
        const memory::CountCpuMemory counting;
        const at::Tensor loss = model->run(batch).loss;
        way.kept_mib = allocated_mib();
        continue;
      }
      const Clock::time_point begin = Clock::now();
      model->run(batch).loss.backward();
      adamw->step();
      adamw->zero_grad();
      way.seconds.push_back(bench::seconds_since(begin));
    }
  for (const Way& way : ways)
    std::printf("%-24s kept %8.1f MiB, %5.1f %%   step %7.3f s, %.2f of plain\n", way.name,
                way.kept_mib, 100 * way.kept_mib / ways[0].kept_mib, bench::median(way.seconds),
                bench::median(way.seconds) / bench::median(ways[0].seconds));
}

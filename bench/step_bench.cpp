// What a step of train::Step costs beside a plain loop of the same operations, in turns in one
// process on the CPU, and how long the dry runs take that price its plans before the first step.
//
//   bench_step [layers] [width] [rows] [length] [pairs]     default 4 512 4 128 200
//   bench_step prices MODEL...                              default gpt2 llama-2-7b
//   bench_step spill [pairs]                                default 50: a step whose memory may bend
//                                                           beside one whose memory may not
//   bench_step recovery [times]                             default 20: from a failure of a step's
//                                                           last request to its commit
#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/small_llama.h"
#include "headroom/libtorch/on.h"
#include "headroom/model/model_catalogue.h"
#include "headroom/models/batch.h"
#include "headroom/models/initialise.h"
#include "headroom/optim/clip.h"
#include "headroom/optim/optimizer.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"
#include "headroom/train/model_objective.h"
#include "headroom/train/step.h"

namespace {

using namespace headroom;

void price(const std::string& name) {
  const sim::Simulation box = sim::simulate("80GiB");
  const auto config = model::model_named(name).config;
  const auto model =
      libtorch::on(box.device(0), at::kBFloat16, [&] { return models::build(config); });
  const auto optimizer =
      optim::make_adamw(model->module().parameters(), {.form = optim::OptimizerForm::fused});
  train::Step step(model->module(), *optimizer, train::objective_of(model));
  const models::Batch batch = models::random_batch(*model, {.rows = 16, .length = 512}, at::kCPU);
  const auto begin = Clock::now();
  step.prepare(train::tensors_of(batch));
  std::printf("%s: %.2f s%s\n", name.c_str(), bench::seconds_since(begin),
              step.prices() == nullptr ? (", but " + step.why_unpriced()).c_str() : "");
  for (const std::set<std::string>& techniques : {std::set<std::string>{}, {"checkpointing"}})
    for (const std::int64_t micro_batch : {16, 8, 4, 2, 1}) {
      const train::Plan plan{.micro_batch = micro_batch, .techniques = techniques};
      if (const auto needed =
              step.prices() ? step.prices()->needed(plan, {.rows = 16}) : std::nullopt)
        std::printf("  %s: %s\n", to_string(plan).c_str(), to_string(needed->largest()).c_str());
    }
}

// On a simulated card that computes. The failure spoils a whole attempt, so the step without it is
// also the time of what failed.
void recover(long times) {
  const sim::Simulation box = sim::simulate("24GiB", {.mode = sim::Mode::compute});
  const auto model = libtorch::on(box.device(0), [] {
    return models::build({bench::small_llama(4, 512, 128), "the benchmark's config"});
  });
  models::initialise(*model);
  const auto optimizer =
      optim::make_adamw(model->module().parameters(), {.form = optim::OptimizerForm::fused});
  train::Step step(model->module(), *optimizer, train::objective_of(model), {.max_grad_norm = 1});
  const train::Tensors batch =
      train::tensors_of(models::random_batch(*model, {.rows = 4, .length = 128}, at::kCPU));
  for (int i = 0; i < 3; ++i) static_cast<void>(step.run(batch));
  const std::uint64_t before = box.card(0).requests();
  static_cast<void>(step.run(batch));
  const std::uint64_t last = box.card(0).requests() - before;
  std::vector<double> clean, recovery;
  for (long i = 0; i < times; ++i) {
    const auto begin = Clock::now();
    static_cast<void>(step.run(batch));
    clean.push_back(bench::seconds_since(begin));
    const sim::InjectionScope scope(box.card(0), sim::once(last));
    const auto again = Clock::now();
    const train::Committed done = step.run(batch);
    if (done.attempts != 2) std::printf("expected 2 attempts, received %d\n", done.attempts);
    recovery.push_back((bench::seconds_since(again) - clean.back()) / clean.back());
  }
  std::printf("step %.1f ms; recovery takes %.2f of it (median of %ld)\n",
              1e3 * bench::median(clean), bench::median(recovery), times);
}

// On a simulated card that computes and has memory enough. By the process's CPU time: the machine's
// other work does not count.
void spill(long pairs) {
  const sim::Simulation box = sim::simulate("24GiB", {.mode = sim::Mode::compute});
  struct Side {
    std::shared_ptr<models::Model> model;
    std::unique_ptr<optim::Optimizer> optimizer;
    std::unique_ptr<train::Step> step;
  };
  const auto made = [&](bool spills) {
    torch::manual_seed(1);
    Side side{.model = libtorch::on(box.device(0), [] {
                return models::build({bench::small_llama(4, 512, 128), "the benchmark's config"});
              })};
    models::initialise(*side.model);
    side.optimizer =
        optim::make_adamw(side.model->module().parameters(), {.form = optim::OptimizerForm::fused});
    train::StepOptions options{.max_grad_norm = 1, .prices = false};
    if (spills) options.spill.emplace();
    side.step = std::make_unique<train::Step>(side.model->module(), *side.optimizer,
                                              train::objective_of(side.model), options);
    return side;
  };
  const Side bends = made(true), plain = made(false);
  const train::Tensors batch =
      train::tensors_of(models::random_batch(*plain.model, {.rows = 4, .length = 128}, at::kCPU));
  const auto seconds_of = [&](const Side& side) {
    const std::clock_t begin = std::clock();
    static_cast<void>(side.step->run(batch));
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  std::vector<double> ratios, seconds;
  for (long pair = 0; pair < pairs + 3; ++pair) {
    const bool first = pair % 2 == 0;
    const double one = seconds_of(first ? bends : plain), other = seconds_of(first ? plain : bends);
    if (pair < 3) continue;
    ratios.push_back(first ? one / other : other / one);
    seconds.push_back(first ? other : one);
  }
  std::printf(
      "step %.1f ms (CPU time); with spill %.4f of it (median of %ld pairs); refused %lld\n",
      1e3 * bench::median(seconds), bench::median(ratios), pairs,
      static_cast<long long>(bends.step->spilled()->refused));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "prices") {
    for (int i = 2; i < argc; ++i) price(argv[i]);
    if (argc == 2)
      for (const char* name : {"gpt2", "llama-2-7b"}) price(name);
    return 0;
  }
  if (argc > 1 && std::string(argv[1]) == "spill") {
    spill(argc > 2 ? std::atol(argv[2]) : 50);
    return 0;
  }
  if (argc > 1 && std::string(argv[1]) == "recovery") {
    recover(argc > 2 ? std::atol(argv[2]) : 20);
    return 0;
  }
  const bench::Arguments given(argc, argv);
  const long layers = given(1, 4), width = given(2, 512), rows = given(3, 4),
             length = given(4, 128), pairs = given(5, 200);
  const Json config = bench::small_llama(layers, width, length);
  const auto made = [&] {
    torch::manual_seed(1);
    const auto model = models::build({config, "the benchmark's config"});
    models::initialise(*model);
    model->train();
    return model;
  };
  const auto ours = made(), plain = made();
  const auto batch = models::random_batch(*ours, {.rows = rows, .length = length}, at::kCPU);
  const auto optimizer = [](models::Model& model) {
    return optim::make_adamw(model.module().parameters(), {.form = optim::OptimizerForm::fused});
  };
  const auto our_adamw = optimizer(*ours), plain_adamw = optimizer(*plain);
  train::Step step(ours->module(), *our_adamw, train::objective_of(ours), {.max_grad_norm = 1});
  const train::Tensors tensors = train::tensors_of(batch);
  std::printf("%d threads; %ld layers, width %ld, %ld x %ld tokens\n", at::get_num_threads(),
              layers, width, rows, length);
  std::vector<double> ratios, seconds;
  for (long pair = 0; pair < pairs + 3; ++pair) {
    const auto first = Clock::now();
    static_cast<void>(step.run(tensors));
    const double a = bench::seconds_since(first);
    const auto second = Clock::now();
    plain->run(batch).loss.backward();
    static_cast<void>(optim::clip_gradients(plain_adamw->parameters(), 1));
    plain_adamw->step();
    plain_adamw->zero_grad();
    const double b = bench::seconds_since(second);
    if (pair < 3) continue;
    ratios.push_back(a / b);
    seconds.push_back(b);
  }
  std::printf("plain step %.1f ms; train::Step takes %.4f of it (median of %ld pairs)\n",
              1e3 * bench::median(seconds), bench::median(ratios), pairs);
  return 0;
}

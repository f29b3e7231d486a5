// The cost of a simulated card:
//   - dry steps (two, AdamW loop, bf16 autocast) of transformers with the sizes of an 8B and a 70B
//     model: time, and memory of this process;
//   - the same of GPT-2 124M with the checker of streams beside without it, in turns;
//   - the same of GPT-2 124M beside PyTorch's MemTracker in Python, run live where .venv-peers is;
//   - a computed step on a card beside the plain CPU step, in turns, on one thread and on two.
//
//   bench_dry_run [runs] [python]     default 5 and .venv-peers/bin/python; from the repository's
//   root
#include <ATen/Parallel.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "headroom/sim/simulate.h"
#include "tests/nets/training.h"

namespace {

using namespace headroom;
using bench::median;
using bench::peak_mib;
using bench::seconds_since;
using nets::Case;
using nets::Precision;
using nets::Sizes;
using nets::Training;

Case gpt(Precision precision, double vocabulary, double width, double layers, double heads,
         double length, double batch) {
  return {"gpt",
          "gpt",
          precision,
          "adamw_loop",
          {{"vocabulary", vocabulary},
           {"width", width},
           {"layers", layers},
           {"heads", heads},
           {"length", length},
           {"batch", batch}}};
}

struct DryRun {
  double seconds = 0;
  double peak_gib = 0;
};

// Two steps from a built net on.
DryRun dry_run(const Case& of, bool check_streams = false) {
  const sim::Simulation box = sim::simulate("1x4000GiB", {.check_streams = check_streams});
  const Training training(of, of.real, box.device(0));
  const nets::Batch batch =
      nets::empty_batch(training.net().inputs(), training.floats(), box.device(0));
  box.card(0).reset_peaks();
  const auto begin = Clock::now();
  nets::train(training, batch, 2);
  return {seconds_since(begin), Bytes(box.card(0).statistics().allocated_bytes.all.peak).gib()};
}

DryRun median_of(const Case& of, int runs) {
  std::vector<double> seconds;
  DryRun one;
  for (int i = 0; i < runs; ++i) {
    one = dry_run(of);
    seconds.push_back(one.seconds);
  }
  one.seconds = median(seconds);
  return one;
}

// In a process of its own, so that its memory is its own, too.
void in_child(const std::function<void()>& work) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    work();
    std::fflush(stdout);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (status != 0) {
    std::fprintf(stderr, "bench_dry_run: a run died\n");
    std::exit(1);
  }
}

void big(const char* name, const Case& of, int runs, double goal_s) {
  in_child([&] {
    const double before = peak_mib();
    const double first = dry_run(of).seconds;
    const double memory = peak_mib();
    const DryRun run = median_of(of, runs);
    std::printf(
        "%-28s %7.1f ms (first %.1f ms; goal %.0f ms)  process %.0f MiB (%.0f before; "
        "goal 250)  peak %.2f GiB\n",
        name, run.seconds * 1e3, first * 1e3, goal_s * 1e3, memory, before, run.peak_gib);
  });
}

void checking_streams(int runs) {
  const Case& of = nets::case_named("gpt");
  std::vector<double> plain, checked, ratio;
  for (int i = -1; i < 4 * runs; ++i) {  // the first is not counted
    const double without = dry_run(of).seconds, with = dry_run(of, true).seconds;
    if (i < 0) continue;
    plain.push_back(without);
    checked.push_back(with);
    ratio.push_back(with / without);
  }
  std::printf("%-28s %7.1f ms, without %.1f ms: median of ratios %.3f (goal 1.10)\n",
              "GPT-2 124M, check_streams", median(checked) * 1e3, median(plain) * 1e3,
              median(ratio));
}

// The time that `tests/peers/peaks.py` takes for the case in the table.
double memtracker_seconds(const std::string& python, const std::string& name) {
  const std::string command =
      "OMP_NUM_THREADS=1 " + python + " tests/peers/peaks.py --memtracker-seconds " + name;
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  double seconds = 0;
  const int read = pipe == nullptr ? 0 : std::fscanf(pipe, "%lf", &seconds);
  if (pipe != nullptr) ::pclose(pipe);
  return read == 1 ? seconds : 0;
}

void beside_memtracker(const std::string& python, int runs) {
  const Case& of = nets::case_named("gpt");
  const DryRun run = median_of(of, runs);
  std::printf("%-28s %7.1f ms  peak %.2f MiB\n", "GPT-2 124M, fp32, 4x1024", run.seconds * 1e3,
              run.peak_gib * 1024);
  if (!std::filesystem::exists(python)) {
    std::printf("%-28s not run: no %s (scripts/peers.sh makes it)\n", "  MemTracker",
                python.c_str());
    return;
  }
  const double theirs = memtracker_seconds(python, of.name);
  if (theirs == 0) {
    std::printf("%-28s not run: %s cannot run it\n", "  MemTracker", python.c_str());
    return;
  }
  std::printf("%-28s %7.1f ms  %.0f x as long (goal 50)\n", "  MemTracker, two steps", theirs * 1e3,
              theirs / run.seconds);
}

void computing(int runs, int threads) {
  const Case of = gpt(Precision::fp32, 8192, 512, 4, 8, 128, 4);
  at::set_num_threads(threads);  // before autograd has a thread for the card
  const sim::Simulation box = sim::simulate("1x64GiB", {.mode = sim::Mode::compute});
  const Training on_cpu(of, of.real, c10::Device(c10::kCPU));
  const Training on_card(of, of.real, box.device(0));
  torch::manual_seed(0);
  const nets::Batch batch = nets::random_batch(on_cpu.net().inputs(), torch::kFloat);
  nets::Batch there;
  for (const torch::Tensor& tensor : batch) there.push_back(tensor.to(box.device(0)));
  const auto seconds = [](const Training& training, const nets::Batch& of_it) {
    const auto begin = Clock::now();
    (void)training.step(of_it);
    return seconds_since(begin);
  };
  std::vector<double> cpu, card, ratio;
  for (int i = -2; i < 4 * runs; ++i) {  // the first two are not counted
    // Each is first every other time.
    double plain = 0;
    if (i % 2 == 0) plain = seconds(on_cpu, batch);
    const double simulated = seconds(on_card, there);
    if (i % 2 != 0) plain = seconds(on_cpu, batch);
    if (i < 0) continue;
    cpu.push_back(plain);
    card.push_back(simulated);
    ratio.push_back(simulated / plain);
  }
  std::printf("%-28s %7.1f ms, on the CPU %.1f ms: median of ratios %.3f (goal 1.15), threads %d\n",
              "computed step, d=512, 4x128", median(card) * 1e3, median(cpu) * 1e3, median(ratio),
              threads);
}

}  // namespace

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::atoi(argv[1]) : 5;
  const std::string python = argc > 2 ? argv[2] : ".venv-peers/bin/python";
  if (runs < 1) {
    std::fprintf(stderr, "usage: bench_dry_run [runs] [python]\n");
    return 64;
  }
  std::printf("dry runs: two steps each, medians of %d\n", runs);
  big("8B: 32 x 4096, 2x2048", gpt(Precision::autocast, 128256, 4096, 32, 32, 2048, 2), runs, 0.1);
  big("70B: 80 x 8192, 1x2048", gpt(Precision::autocast, 128256, 8192, 80, 64, 2048, 1), runs,
      0.25);
  in_child([&] { checking_streams(runs); });
  in_child([&] { beside_memtracker(python, runs); });
  for (const int threads : {1, 2}) in_child([&] { computing(runs, threads); });
  return 0;
}

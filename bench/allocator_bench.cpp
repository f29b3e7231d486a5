// The speed of the allocator model beside PyTorch's own allocator in the same run: both play the
// same decoded array of operations, training of a GPT step after step, and must end with the same
// statistics, so that neither can skip work. It ends with the cost of a fork of the model.
//
//   bench_allocator [events] [runs]      default 1,000,000 and 5
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "headroom/allocator/operation.h"
#include "tests/oracle/dice.h"
#include "tests/oracle/real_allocator.h"
#include "tests/oracle/training_steps.h"

namespace {

using namespace headroom::allocator;
using headroom::Bytes;
using headroom::bench::median;
using headroom::bench::seconds_since;
using headroom::oracle::RealAllocator;
using headroom::oracle::Setup;
using Operations = std::vector<Operation>;

struct Result {
  double seconds = 0;
  Statistics statistics;
  bool done = false;
};

template <typename Allocator>
double seconds_to_play(Allocator& allocator, const Operations& operations) {
  const auto start = headroom::Clock::now();
  for (const Operation& operation : operations) allocator.play(operation);
  return seconds_since(start);
}

Result play_model(const Setup& setup, const Operations& operations) {
  Player player(
      CachingAllocator({.capacity = setup.capacity, .settings = parse_settings(setup.settings)}));
  const double seconds = seconds_to_play(player, operations);
  return {seconds, player.card().statistics(), true};
}

Result play_real(const Setup& setup, const Operations& operations) {
  RealAllocator real(setup);
  const double seconds = seconds_to_play(real, operations);
  return {seconds, real.statistics(), true};
}

// PyTorch's allocator is of the process, so each run has one of its own; the model's as well, so
// that neither finds memory warmer than the other.
Result in_child(const std::function<Result()>& run) {
  void* memory =
      ::mmap(nullptr, sizeof(Result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* shared = new (memory) Result;
  const pid_t child = ::fork();
  if (child == 0) {
    *shared = run();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  const Result result = *shared;
  ::munmap(memory, sizeof(Result));
  if (!result.done) {
    std::fprintf(stderr, "bench_allocator: a run died\n");
    std::exit(1);
  }
  return result;
}

// A GPT of 355 million parameters.
headroom::oracle::TrainingSteps gpt() {
  return headroom::oracle::TrainingSteps(
      {.layers = 24, .hidden = 1024, .heads = 16, .batch = 8, .sequence = 1024});
}

// Sequences of one length, or padded to the longest of each batch.
Operations training(std::size_t events, bool lengths_vary) {
  headroom::oracle::Dice dice(1);
  headroom::oracle::TrainingSteps steps = gpt();
  while (steps.operations().size() < events)
    lengths_vary ? steps.step(dice.between(256, 1024)) : steps.step();
  Operations operations = steps.operations();
  operations.resize(events);
  return operations;
}

struct Case {
  std::string name;
  bool lengths_vary;
  Setup setup;
};

void compare(const Case& test, const Operations& operations, int runs) {
  std::vector<double> model, real;
  Statistics statistics;
  for (int run = 0; run < runs; ++run) {
    const Result ours = in_child([&] { return play_model(test.setup, operations); });
    const Result theirs = in_child([&] { return play_real(test.setup, operations); });
    if (ours.statistics != theirs.statistics) {
      std::fprintf(stderr, "bench_allocator: %s: the statistics differ\n", test.name.c_str());
      std::exit(1);
    }
    model.push_back(static_cast<double>(operations.size()) / ours.seconds);
    real.push_back(static_cast<double>(operations.size()) / theirs.seconds);
    statistics = ours.statistics;
  }
  std::printf("%-31s %6.2f M/s %6.2f M/s %5.1f x %9.2f GiB %6lld %8lld\n", test.name.c_str(),
              median(model) / 1e6, median(real) / 1e6, median(model) / median(real),
              static_cast<double>(statistics.reserved_bytes.all.peak) / (1 << 30),
              static_cast<long long>(statistics.num_ooms),
              static_cast<long long>(statistics.num_alloc_retries));
  std::fflush(stdout);  // children must not print it again
}

// Up to the middle of the third step, with optimizer states and activations.
Operations until_middle_of_a_step() {
  headroom::oracle::TrainingSteps steps = gpt();
  std::size_t begin = 0;
  for (int step = 0; step < 3; ++step) {
    begin = steps.operations().size();
    steps.step();
  }
  Operations operations = steps.operations();
  operations.resize((begin + operations.size()) / 2);
  return operations;
}

// A copy of a card, made on memory that the one before gave back.
void bench_fork() {
  constexpr int kCopies = 2001;
  Player player(CachingAllocator{});
  player.play(until_middle_of_a_step());
  std::vector<double> microseconds;
  for (int i = 0; i < kCopies; ++i) {
    const auto start = headroom::Clock::now();
    const CachingAllocator copy(player.card());
    microseconds.push_back(seconds_since(start) * 1e6);
  }
  std::printf("a fork: %.1f microseconds for %lld live blocks, median of %d\n",
              median(microseconds),
              static_cast<long long>(player.card().statistics().active.all.current), kCopies);
}

}  // namespace

int main(int argc, char** argv) {
  const int events = argc > 1 ? std::atoi(argv[1]) : 1'000'000;
  const int runs = argc > 2 ? std::atoi(argv[2]) : 5;
  if (events < 1 || runs < 1) {
    std::fprintf(stderr, "usage: bench_allocator [events] [runs]\n");
    return 64;
  }
  const Bytes roomy{std::int64_t{80} << 30}, tight{std::int64_t{15500} << 20};
  const std::vector<Case> cases = {
      {"defaults", false, {.capacity = roomy}},
      {"defaults, lengths vary", true, {.capacity = roomy}},
      {"expandable, lengths vary",
       true,
       {.capacity = roomy, .settings = "expandable_segments:True"}},
      {"max_split 128, lengths vary",
       true,
       {.capacity = roomy, .settings = "max_split_size_mb:128"}},
      {"roundup 8, lengths vary",
       true,
       {.capacity = roomy, .settings = "roundup_power2_divisions:8"}},
      {"defaults, a card nearly full", true, {.capacity = tight}},
  };
  std::printf(
      "%d events of training a GPT (24 layers, hidden 1024, batch 8, up to 1024 tokens), median of "
      "%d runs\n%-31s %10s %10s %7s %13s %6s %8s\n",
      events, runs, "settings", "model", "PyTorch", "ratio", "reserved peak", "OOMs", "retries");
  std::fflush(stdout);
  const Operations steady = training(static_cast<std::size_t>(events), false);
  const Operations varying = training(static_cast<std::size_t>(events), true);
  for (const Case& test : cases) compare(test, test.lengths_vary ? varying : steady, runs);
  bench_fork();
  return 0;
}

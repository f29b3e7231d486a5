// In compute mode a simulated card gives the CPU's results, to the bit: twenty training steps of
// each net, on one card, on four with a replica each, and with the layers split over two.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <cstring>
#include <ostream>
#include <thread>

#include "headroom/sim/simulate.h"
#include "tests/nets/training.h"

namespace headroom::nets {

void PrintTo(const Case& of, std::ostream* out) {
  *out << of.name;
}

namespace {

constexpr int kSteps = 20;
const c10::Device kCpu{c10::kCPU};

// Sums of many threads depend on their number, so it must be the same everywhere. Autograd starts
// one thread a device at the first backward pass on one, and that thread keeps the number that
// holds then: it is set once, before any test of this program runs. Tests that set it for
// themselves came too late after others that had run backward with the machine's number.
// OMP_NUM_THREADS overrides it.
class Threads final : public testing::Environment {
  void SetUp() override {
    if (std::getenv("OMP_NUM_THREADS") == nullptr) at::set_num_threads(1);
  }
};
[[maybe_unused]] const testing::Environment* const threads =
    testing::AddGlobalTestEnvironment(new Threads);

sim::Simulation computing(const std::string& spec) {
  // The rules also decide which of autocast's lists holds.
  return sim::simulate(
      spec, {.mode = sim::Mode::compute, .rules = sim::Rules::cpu, .check_streams = true});
}

Batch moved(const Batch& batch, c10::Device device) {
  Batch there;
  for (const Tensor& tensor : batch) there.push_back(tensor.to(device));
  return there;
}

void copy_state(const Training& from, const Training& to) {
  const torch::NoGradGuard no_grad;
  const std::vector<Tensor> ours = to.state(), theirs = from.state();
  for (std::size_t i = 0; i < ours.size(); ++i) ours[i].copy_(theirs[i]);
}

// Sets the generator that dropout draws from in the next step.
void seed(c10::Device device, int number) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::scoped_lock lock(generator.mutex());
  generator.set_current_seed(static_cast<std::uint64_t>(number));
}

bool same_bits(const Tensor& one, const Tensor& other) {
  const Tensor a = one.detach().cpu().contiguous(), b = other.detach().cpu().contiguous();
  return a.dtype() == b.dtype() && a.sizes() == b.sizes() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

void expect_same_state(const Training& one, const Training& other) {
  const std::vector<Tensor> a = one.state(), b = other.state();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(same_bits(a[i], b[i])) << "tensor " << i << " of shape " << a[i].sizes();
}

// Twenty steps of the same on the CPU and on `device`, where the net may be split.
void expect_same_training(const Case& of, c10::Device device,
                          std::optional<c10::Device> second_half = {}) {
  torch::manual_seed(1);
  const Training reference(of, of.small, kCpu);
  const Training simulated(of, of.small, device, second_half);
  copy_state(reference, simulated);
  for (int step = 0; step < kSteps; ++step) {
    const Batch batch = random_batch(reference.net().inputs(), reference.floats());
    seed(kCpu, step);
    const Tensor expected = reference.step(batch);
    seed(device, step);
    const Tensor loss = simulated.step(moved(batch, device));
    ASSERT_TRUE(same_bits(expected, loss))
        << "step " << step << ": " << expected.item() << " " << loss.item();
    torch::manual_seed(static_cast<std::uint64_t>(100 + step));
  }
  expect_same_state(reference, simulated);
}

class Equality : public testing::TestWithParam<Case> {};

TEST_P(Equality, OfACardAndTheCpu) {
  const sim::Simulation box = computing("1x1GiB");
  expect_same_training(GetParam(), box.device(0));
}

// ---- Data parallel by hand

using Replicas = std::vector<std::unique_ptr<Training>>;

void backward(const Training& replica, const Batch& shard) {
  replica.loss(shard).backward();
}

// The mean of the replicas' gradients, summed in their order, becomes everyone's gradient.
void average_gradients(const Replicas& replicas) {
  const torch::NoGradGuard no_grad;
  std::vector<std::vector<Tensor>> parameters;
  for (const auto& replica : replicas) parameters.push_back(replica->net().parameters());
  for (std::size_t i = 0; i < parameters[0].size(); ++i) {
    Tensor mean = parameters[0][i].grad().clone();
    for (std::size_t r = 1; r < replicas.size(); ++r)
      mean += parameters[r][i].grad().to(mean.device());
    mean /= static_cast<double>(replicas.size());
    for (const auto& of_replica : parameters)
      of_replica[i].mutable_grad() = mean.to(of_replica[i].device(), mean.dtype(), false, true);
  }
}

Replicas replicas_on(const Case& of, const std::vector<c10::Device>& devices,
                     const Training& first) {
  Replicas replicas;
  for (const c10::Device device : devices) {
    replicas.push_back(std::make_unique<Training>(of, of.small, device));
    copy_state(first, *replicas.back());
  }
  return replicas;
}

void step(const Replicas& replicas) {
  average_gradients(replicas);
  for (const auto& replica : replicas) {
    replica->optimizer().step();
    replica->optimizer().zero_grad();
  }
}

TEST_P(Equality, OfFourReplicasInThreadsAndTheCpu) {
  constexpr int kReplicas = 4;
  const sim::Simulation box = computing("4x1GiB");
  std::vector<c10::Device> cards;
  for (int i = 0; i < kReplicas; ++i) cards.push_back(box.device(i));
  torch::manual_seed(2);
  const Training start(GetParam(), GetParam().small, kCpu);
  const Replicas expected = replicas_on(GetParam(), {kCpu, kCpu, kCpu, kCpu}, start);
  const Replicas simulated = replicas_on(GetParam(), cards, start);
  for (int round = 0; round < kSteps; ++round) {
    torch::manual_seed(static_cast<std::uint64_t>(100 + round));
    std::vector<Batch> shards;
    for (int i = 0; i < kReplicas; ++i)
      shards.push_back(random_batch(start.net().inputs(), start.floats()));
    for (std::size_t i = 0; i < kReplicas; ++i) {
      seed(kCpu, static_cast<int>(i));
      backward(*expected[i], shards[i]);
    }
    std::vector<std::thread> running;
    for (std::size_t i = 0; i < kReplicas; ++i)
      running.emplace_back([&, i] {
        seed(cards[i], static_cast<int>(i));
        backward(*simulated[i], moved(shards[i], cards[i]));
      });
    for (std::thread& thread : running) thread.join();
    step(expected);
    step(simulated);
  }
  for (std::size_t i = 0; i < kReplicas; ++i) expect_same_state(*expected[i], *simulated[i]);
}

INSTANTIATE_TEST_SUITE_P(Nets, Equality, testing::ValuesIn(cases()),
                         [](const auto& instance) { return instance.param.name; });

// ---- Layers split over two cards

class Split : public testing::TestWithParam<std::string> {};

TEST_P(Split, OverTwoCardsEqualsTheCpu) {
  const sim::Simulation box = computing("2x1GiB");
  expect_same_training(case_named(GetParam()), box.device(0), box.device(1));
  EXPECT_GT(box.card(1).statistics().allocated_bytes.all.peak, 0);
}

INSTANTIATE_TEST_SUITE_P(Nets, Split, testing::Values("mlp", "gpt", "gpt_checkpointed"),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace headroom::nets

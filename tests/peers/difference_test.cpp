// The two rule sets differ by a table and by nothing else: every operator of every net keeps under
// CUDA's rules exactly as many bytes more than under the CPU's as its row says, and none without a
// row; and the peak under CUDA's rules follows from that.
#include <gmock/gmock.h>

#include "tests/peers/calls.h"
#include "tests/peers/measure.h"

namespace headroom::nets {
namespace {

struct Measured {
  std::vector<Call> calls;
  std::int64_t peak = 0;
};

Measured run(const Case& of, sim::Rules rules) {
  const sim::Simulation box = roomy_card(rules);
  const Training training(of, of.real, box.device(0));
  const Batch batch = empty_batch(training.net().inputs(), training.floats(), box.device(0));
  sim::Card& card = box.card(0);
  card.reset_peaks();
  Calls calls(card.statistics().requested_bytes.all.current);
  card.watch(&calls);
  train(training, batch, 2);
  card.watch(nullptr);
  return {calls.all(), card.statistics().requested_bytes.all.peak};
}

std::string place(const Measured& of, std::size_t i) {
  return "call " + std::to_string(i) + ", " + of.calls[i].name;
}

// Where a run is at its peak.
std::size_t call_at_peak(const Measured& of) {
  for (std::size_t i = 0; i < of.calls.size(); ++i)
    if (of.calls[i].most == of.peak) return i;
  return of.calls.size();
}

class Difference : public testing::TestWithParam<Case> {};

TEST_P(Difference, IsWhatTheTableSays) {
  const Measured cuda = run(GetParam(), sim::Rules::cuda), cpu = run(GetParam(), sim::Rules::cpu);
  ASSERT_EQ(cuda.calls.size(), cpu.calls.size());
  for (std::size_t i = 0; i < cuda.calls.size(); ++i) {
    ASSERT_EQ(cuda.calls[i].name, cpu.calls[i].name) << i;
    ASSERT_EQ(cuda.calls[i].kept_bytes(0) - cpu.calls[i].kept_bytes(0),
              cpu.calls[i].difference.value_or(0))
        << place(cpu, i);
    if (!cpu.calls[i].difference) {
      ASSERT_EQ(cuda.calls[i].most - cuda.calls[i].before, cpu.calls[i].most - cpu.calls[i].before)
          << place(cpu, i) << ": other temporaries, and no row in the table";
    }
  }
}

TEST_P(Difference, ExplainsThePeak) {
  const Measured cuda = run(GetParam(), sim::Rules::cuda), cpu = run(GetParam(), sim::Rules::cpu);
  const std::size_t at = call_at_peak(cuda);
  ASSERT_LT(at, cuda.calls.size());
  ASSERT_EQ(cuda.calls.size(), cpu.calls.size());
  // From the CPU's run and the table: what is alive of the differing results.
  std::int64_t table = 0;
  for (std::size_t i = 0; i < at; ++i) {
    const std::int64_t alive = cuda.calls[i].kept_bytes(at) - cpu.calls[i].kept_bytes(at);
    ASSERT_TRUE(alive == 0 || alive == cpu.calls[i].difference.value_or(0)) << place(cpu, i);
    table += alive;
  }
  EXPECT_EQ(cuda.calls[at].before, cpu.calls[at].before + table);
  const std::int64_t inside =
      (cuda.calls[at].most - cuda.calls[at].before) - (cpu.calls[at].most - cpu.calls[at].before);
  EXPECT_TRUE(inside == 0 || cpu.calls[at].difference) << place(cpu, at);
  EXPECT_EQ(cuda.peak, cpu.calls[at].most + table + inside);
}

// Nets of which both rule sets run the same operators. CUDA has others for attention and recurrent
// nets, and under autocast its own lists say which operator runs in which type.
std::vector<Case> same_operators() {
  return {case_named("mlp"),    case_named("mlp_momentum_bf16"),
          case_named("resnet"), case_named("moe"),
          case_named("text"),   case_named("autoencoder")};
}

INSTANTIATE_TEST_SUITE_P(Nets, Difference, testing::ValuesIn(same_operators()),
                         [](const auto& instance) { return instance.param.name; });

// CUDA's mask of a dropout has one byte an element, the CPU's four: two dropouts a layer.
TEST(DifferenceOfDropout, IsThreeBytesAnElementOfEachMask) {
  const Case& of = case_named("gpt_dropout");
  const std::int64_t elements = of.real["batch"] * of.real["length"] * of.real["width"];
  const std::int64_t masks = 2 * of.real["layers"];
  std::int64_t rows = 0;
  for (const Call& call : run(of, sim::Rules::cpu).calls)
    if (call.name == "aten::native_dropout") rows += call.difference.value_or(0);
  EXPECT_EQ(rows, 2 * masks * elements * -3);  // in two steps
}

}  // namespace
}  // namespace headroom::nets

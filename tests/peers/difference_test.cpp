// The two rule sets differ by a table and by nothing else: every operator of every net keeps under
// CUDA's rules exactly as many bytes more than under the CPU's as its row says, and none without a
// row; and the peak under CUDA's rules follows from that.
#include <gmock/gmock.h>

#include <map>
#include <string>
#include <vector>

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

// Nets of which the two rule sets run different operators, or the same on other types: their calls
// cannot be paired, so the rows do not explain them whole. What they share with the others is
// explained there.
const std::map<std::string, std::string>& not_covered() {
  static const std::string attention =
      "CUDA runs another attention than the CPU's _scaled_dot_product_flash_attention_for_cpu";
  static const std::string recurrent =
      "CUDA runs _cudnn_rnn for all steps and layers, the CPU every step's products";
  static const std::string autocast =
      "by autocast's lists CUDA runs some operators in another type than the CPU";
  static const std::map<std::string, std::string> named = {
      {"gpt", attention},
      {"gpt_tied", attention},
      {"gpt_dropout", attention},
      {"gpt_bf16", attention},
      {"gpt_autocast", attention + "; " + autocast},
      {"gpt_checkpointed", attention},
      {"llama", attention},
      {"encoder_decoder", attention},
      {"vit", attention},
      {"gru", recurrent},
      {"lstm", recurrent},
      {"resnet_autocast", autocast}};
  return named;
}

std::vector<Case> same_operators() {
  std::vector<Case> same;
  for (const Case& of : cases())
    if (!not_covered().contains(of.name)) same.push_back(of);
  return same;
}

INSTANTIATE_TEST_SUITE_P(Nets, Difference, testing::ValuesIn(same_operators()),
                         [](const auto& instance) { return instance.param.name; });

// Another operator runs, or the same on other types: without a row it needs other memory.
bool pairs(const Measured& cuda, const Measured& cpu) {
  if (cuda.calls.size() != cpu.calls.size()) return false;
  for (std::size_t i = 0; i < cuda.calls.size(); ++i) {
    const Call &one = cuda.calls[i], &other = cpu.calls[i];
    if (one.name != other.name) return false;
    if (!other.difference && one.most - one.before != other.most - other.before) return false;
  }
  return true;
}

// No net is left out without need.
TEST(NotCovered, AreNetsWhoseCallsCannotBePaired) {
  for (const auto& [name, why] : not_covered()) {
    const Case& of = case_named(name);
    EXPECT_FALSE(pairs(run(of, sim::Rules::cuda), run(of, sim::Rules::cpu))) << name;
  }
}

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

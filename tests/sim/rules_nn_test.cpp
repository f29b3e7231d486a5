// Every operator that layers, losses and activations need, on the CPU and on a simulated card: the
// card's shapes are the CPU kernel's, its numbers are the CPU's to the bit, forward and backward,
// and a card without data gives the same shapes, bytes and allocations as one that computes.
#include <gmock/gmock.h>

#include "tests/sim/nn_case.h"

namespace headroom::sim {
namespace {

using at::Tensor;

Tensors all_of(const Outcome& outcome) {
  Tensors all = outcome.results;
  all.insert(all.end(), outcome.gradients.begin(), outcome.gradients.end());
  return all;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return at::equal(a, b) || at::allclose(a, b, 0, 0, true);  // NaN where the other is
}

void expect_the_cpus(const Case& c, const Tensor& card, const Tensor& cpu) {
  ASSERT_EQ(card.defined(), cpu.defined());
  if (!cpu.defined()) return;
  EXPECT_EQ(card.sizes(), cpu.sizes());
  EXPECT_EQ(card.scalar_type(), cpu.scalar_type());
  if (!c.strides_differ) {
    EXPECT_EQ(card.strides(), cpu.strides());
  }
  if (c.same_bits)
    EXPECT_TRUE(same_bits(card.cpu(), cpu)) << card.cpu() << cpu;
  else
    EXPECT_TRUE(at::allclose(card.cpu(), cpu, 1e-4, 1e-5));
}

void expect_the_same_plan(const Tensor& shape_only, const Tensor& computed) {
  ASSERT_EQ(shape_only.defined(), computed.defined());
  if (!computed.defined()) return;
  EXPECT_EQ(shape_only.sizes(), computed.sizes());
  EXPECT_EQ(shape_only.strides(), computed.strides());
  EXPECT_EQ(shape_only.scalar_type(), computed.scalar_type());
  EXPECT_EQ(shape_only.storage().nbytes(), computed.storage().nbytes());
}

class NnOperator : public ::testing::TestWithParam<Case> {};

TEST_P(NnOperator, GivesTheCpusShapesAndNumbersInBothModes) {
  const Case& c = GetParam();
  Simulation box = simulate("1x4GiB");
  Card& card = box.card(0);
  for (const at::ScalarType type : c.types)
    for (const Rules rules : {Rules::cuda, Rules::cpu}) {
      SCOPED_TRACE(::testing::Message() << type << (rules == Rules::cuda ? " cuda" : " cpu"));
      torch::manual_seed(3);
      const Tensors inputs = c.inputs(at::TensorOptions(type));
      const Outcome cpu = outcome(c, inputs, c10::kCPU, nullptr);
      card.set_rules(rules);
      card.set_mode(Mode::compute);
      const Outcome computed = outcome(c, inputs, card.device(), &card);
      card.set_mode(Mode::shape_only);
      const Outcome shape_only = outcome(c, inputs, card.device(), &card);

      EXPECT_EQ(shape_only.allocations, computed.allocations);
      for (std::size_t i = 0; i < all_of(cpu).size(); ++i) {
        SCOPED_TRACE(::testing::Message() << "result or gradient " << i);
        expect_the_cpus(c, all_of(computed).at(i), all_of(cpu)[i]);
        expect_the_same_plan(all_of(shape_only).at(i), all_of(computed)[i]);
      }
    }
}

const auto kName = [](const auto& one) { return one.param.name; };
INSTANTIATE_TEST_SUITE_P(Layers, NnOperator, ::testing::ValuesIn(nn_layers()), kName);
INSTANTIATE_TEST_SUITE_P(Functions, NnOperator, ::testing::ValuesIn(nn_functions()), kName);

}  // namespace
}  // namespace headroom::sim

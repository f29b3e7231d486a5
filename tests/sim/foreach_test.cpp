// Lists of tensors at once: every operator of one list, and those with numbers of the host.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "headroom/sim/simulate.h"

namespace headroom::sim {
namespace {

using List = std::vector<at::Tensor>;

// "_foreach_abs" and "_foreach_abs_": of one list, giving one or writing it.
std::vector<c10::OperatorHandle> of_one_list(bool in_place) {
  std::vector<c10::OperatorHandle> all;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (!name.name.starts_with("aten::_foreach_") || !name.overload_name.empty()) continue;
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (op && op->schema().arguments().size() == 1 && name.name.ends_with('_') == in_place)
      all.push_back(*op);
  }
  return all;
}

List on(const at::Device& device) {
  torch::manual_seed(3);
  return {torch::rand({4, 3}).add(0.5).to(device), torch::rand({7}).add(0.5).to(device)};
}

List called(const c10::OperatorHandle& op, const List& inputs) {
  torch::jit::Stack stack{inputs};
  op.callBoxed(&stack);
  return stack.empty() ? inputs : stack[0].toTensorVector();
}

void expect_the_cpus_numbers(const c10::OperatorHandle& op) {
  SCOPED_TRACE(c10::toString(op.operator_name()));
  const List expected = called(op, on(at::kCPU));
  for (const Mode mode : {Mode::shape_only, Mode::compute}) {
    const Simulation box = simulate("1x1GiB", {.mode = mode});
    const List made = called(op, on(box.device(0)));
    ASSERT_EQ(made.size(), expected.size());
    for (std::size_t i = 0; i < made.size(); ++i) {
      EXPECT_EQ(made[i].sizes(), expected[i].sizes());
      EXPECT_EQ(made[i].dtype(), expected[i].dtype());
      if (mode == Mode::compute) {
        EXPECT_TRUE(torch::allclose(made[i].cpu(), expected[i], 0, 0, true));
      }
    }
  }
}

TEST(ListsOfTensors, GiveWhatTheCpuGives) {
  const auto operators = of_one_list(false);
  ASSERT_GT(operators.size(), 30);
  for (const c10::OperatorHandle& op : operators) expect_the_cpus_numbers(op);
}

TEST(ListsOfTensors, AreWrittenInPlace) {
  const auto operators = of_one_list(true);
  ASSERT_GT(operators.size(), 30);
  for (const c10::OperatorHandle& op : operators) expect_the_cpus_numbers(op);
}

TEST(ListsOfTensors, TakeNumbersOfTheHost) {
  const auto run = [](const at::Device& device) {
    List x = on(device);
    const at::Tensor numbers = torch::tensor({0.5, 2.0});
    at::_foreach_addcmul_(x, x, x, numbers);
    at::_foreach_addcdiv_(x, x, x, numbers);
    x = at::_foreach_addcmul(x, x, x, numbers);
    return at::_foreach_addcdiv(x, x, x, numbers);
  };
  const List expected = run(at::kCPU);
  for (const Mode mode : {Mode::shape_only, Mode::compute}) {
    const Simulation box = simulate("1x1GiB", {.mode = mode});
    const List made = run(box.device(0));
    for (std::size_t i = 0; i < made.size(); ++i) {
      EXPECT_EQ(made[i].sizes(), expected[i].sizes());
      if (mode == Mode::compute) {
        EXPECT_TRUE(torch::allclose(made[i].cpu(), expected[i], 0, 0, true));
      }
    }
  }
}

TEST(ListsOfTensors, RefuseAnotherNumberOfScalars) {
  const Simulation box = simulate("1x1GiB");
  const List x = on(box.device(0));
  EXPECT_THROW((void)at::_foreach_addcmul(x, x, x, torch::ones({3})), c10::Error);
  EXPECT_THROW((void)at::_foreach_addcmul(x, x, x, torch::ones({2}, box.device(0))), c10::Error);
}

}  // namespace
}  // namespace headroom::sim

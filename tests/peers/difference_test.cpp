// The two rule sets differ by tables and by nothing else: what the bytes on a card are under CUDA's
// rules follows, operator by operator, from a run under the CPU's and from the rows that say what
// CUDA keeps more (rules/table.h) and what it runs instead (replaced.h).
#include <gmock/gmock.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/peers/calls.h"
#include "tests/peers/curve.h"
#include "tests/peers/measure.h"

namespace headroom::nets {
namespace {

struct Watched {
  std::unique_ptr<Calls> calls;
  std::int64_t peak = 0;
};

Watched run(const Case& of, sim::Rules rules) {
  const sim::Simulation box = roomy_card(rules);
  const Training training(of, of.real, box.device(0));
  const Batch batch = empty_batch(training.net().inputs(), training.floats(), box.device(0));
  sim::Card& card = box.card(0);
  card.reset_peaks();
  auto calls = std::make_unique<Calls>(card.statistics().requested_bytes.all.current);
  card.observe(calls.get());
  train(training, batch, 2);
  card.observe(nullptr);
  calls->stop();
  return {std::move(calls), card.statistics().requested_bytes.all.peak};
}

std::string place(const std::vector<Point>& points, std::size_t i) {
  return "point " + std::to_string(i) + ", " + points[i].name;
}

class Difference : public testing::TestWithParam<Case> {};

TEST_P(Difference, IsWhatTheTablesSay) {
  const Watched cuda = run(GetParam(), sim::Rules::cuda), cpu = run(GetParam(), sim::Rules::cpu);
  const std::vector<Point> there = measured(*cuda.calls), from = predicted_for_cuda(*cpu.calls);
  EXPECT_EQ(peak_of(there), cuda.peak);
  ASSERT_EQ(from.size(), there.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    ASSERT_EQ(from[i].name, there[i].name) << i;
    ASSERT_EQ(from[i].before, there[i].before) << place(from, i);
    if (from[i].most_is_open) continue;
    ASSERT_EQ(from[i].most, there[i].most) << place(from, i);
  }
}

TEST_P(Difference, ExplainsThePeak) {
  const std::vector<Point> points = predicted_for_cuda(*run(GetParam(), sim::Rules::cpu).calls);
  EXPECT_EQ(peak_of(points), peak_bytes(GetParam(), sim::Rules::cuda));
}

INSTANTIATE_TEST_SUITE_P(Nets, Difference, testing::ValuesIn(cases()),
                         [](const auto& instance) { return instance.param.name; });

// Every row of what CUDA runs instead is tried above.
TEST(DifferenceOfReplaced, HasANetForEveryRow) {
  std::set<std::string> tried, rows;
  for (const char* net : {"gpt", "gru", "lstm", "resnet_autocast"}) {
    const Watched cpu = run(case_named(net), sim::Rules::cpu);
    for (const Function& function : cpu.calls->functions()) tried.insert(function.name);
  }
  for (const Replaced& row : replaced()) rows.insert(std::string(row.function));
  EXPECT_EQ(tried, rows);
}

// CUDA's mask of a dropout has one byte an element, the CPU's four: two dropouts a layer.
TEST(DifferenceOfDropout, IsThreeBytesAnElementOfEachMask) {
  const Case& of = case_named("gpt_dropout");
  const std::int64_t elements = of.real["batch"] * of.real["length"] * of.real["width"];
  const std::int64_t masks = 2 * of.real["layers"];
  std::int64_t rows = 0;
  const Watched cpu = run(of, sim::Rules::cpu);
  for (const Call& call : cpu.calls->all())
    if (call.name == "aten::native_dropout") rows += call.difference.value_or(0);
  EXPECT_EQ(rows, 2 * masks * elements * -3);  // in two steps
}

}  // namespace
}  // namespace headroom::nets

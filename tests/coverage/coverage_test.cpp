// Every case, with data and without: the same shapes, types and bytes, the same events of the
// card's memory, and, with data, the CPU's values to the bit. Where a case is said to differ, it
// must: a limit that no longer holds fails here, too.
#include <gmock/gmock.h>

#include <optional>

#include "limits.h"
#include "run.h"

namespace headroom::coverage {
namespace {

struct Asked {
  const Case* one;
  c10::ScalarType type;
};

std::string text(const Asked& asked) {
  return identifier(*asked.one) + (asked.type == c10::kFloat ? "_fp32" : "_bf16");
}

std::vector<Asked> all_asked() {
  torch::set_num_threads(1);  // sums in the same order everywhere
  std::vector<Asked> all;
  for (const Case& one : all_cases()) {
    all.push_back({&one, c10::kFloat});
    if (one.limits.fp32_only.empty()) all.push_back({&one, c10::kBFloat16});
  }
  return all;
}

// The run, or nothing and a failure.
template <typename Run>
std::optional<Outcome> tried(const char* where, const Run& run) {
  try {
    return run();
  } catch (const c10::Error& error) {
    ADD_FAILURE() << where << ": " << error.what_without_backtrace();
  } catch (const std::exception& error) {
    ADD_FAILURE() << where << ": " << error.what();
  }
  return {};
}

void expect_same_without_data(const Case& one, const Setting& setting, const Outcome& computed) {
  const auto planned =
      tried("shape-only", [&] { return run_simulated(one, setting, sim::Mode::shape_only); });
  if (!planned) return;
  if (!one.limits.reads_values.empty()) {
    EXPECT_GT(planned->values_read, 0) << "it goes by no values";
    return;
  }
  EXPECT_TRUE(same_shapes(*planned, computed)) << "shape-only against computing";
  EXPECT_TRUE(same_events(*planned, computed)) << "shape-only against computing";
}

void expect_same_values_as_cpu(const Case& one, const Setting& setting, const Outcome& computed) {
  if (setting.type == c10::kBFloat16 && !one.limits.no_bf16_cpu.empty()) {
    EXPECT_THROW((void)run_on_cpu(one, setting), c10::Error) << "the CPU can do it";
    return;
  }
  if (setting.type == c10::kBFloat16 && !unsteady_in_bf16(one).empty()) return;
  const auto expected = tried("on the CPU", [&] { return run_on_cpu(one, setting); });
  if (!expected) return;
  const std::string by_layout = setting.channels_last && !became_exact_channels_last(one)
                                    ? not_exact_channels_last(one)
                                    : std::string();
  if (one.limits.not_exact.empty() && by_layout.empty()) {
    EXPECT_TRUE(same_values(computed, *expected)) << "computing against the CPU";
  } else if (setting.type == c10::kFloat && !setting.expanded_cotangent &&
             (!setting.channels_last || !by_layout.empty())) {
    EXPECT_FALSE(same_values(computed, *expected)) << "it is exact";
  }
}

void expect_coverage(const Case& one, const Setting& setting) {
  if (!one.limits.not_simulated.empty()) {
    for (const sim::Mode mode : {sim::Mode::shape_only, sim::Mode::compute})
      EXPECT_THROW((void)run_simulated(one, setting, mode), c10::NotImplementedError);
    return;
  }
  const auto computed =
      tried("computing", [&] { return run_simulated(one, setting, sim::Mode::compute); });
  if (!computed) return;
  expect_same_without_data(one, setting, *computed);
  expect_same_values_as_cpu(one, setting, *computed);
}

bool takes_images(const Case& one) {
  Trial trial({});
  (void)one.program(trial);
  return trial.saw_images();
}

class EveryCase : public testing::TestWithParam<Asked> {};

TEST_P(EveryCase, RunsTheSameWithDataAndWithout) {
  expect_coverage(*GetParam().one, {.type = GetParam().type});
}

TEST_P(EveryCase, TakesTheGradientOfASum) {
  expect_coverage(*GetParam().one, {.type = GetParam().type, .expanded_cotangent = true});
}

// Without images there is nothing to lay out in another way.
TEST_P(EveryCase, TakesImagesWithTheirChannelsLast) {
  const Setting setting = {.type = GetParam().type, .channels_last = true};
  if (takes_images(*GetParam().one)) expect_coverage(*GetParam().one, setting);
}

INSTANTIATE_TEST_SUITE_P(Coverage, EveryCase, testing::ValuesIn(all_asked()),
                         [](const auto& asked) { return text(asked.param); });

}  // namespace
}  // namespace headroom::coverage

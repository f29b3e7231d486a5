#include "headroom/dryrun/describe.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace headroom::dryrun {
namespace {

using namespace headroom::literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

trace::Report of_a_peak() {
  trace::Report report;
  report.peak.allocated = 8_MiB;
  report.peak.reserved = 20_MiB;
  report.peak.phase = trace::Phase::backward;
  report.peak.step = 2;
  report.at_peak.parameters = 2_MiB;
  report.at_peak.activations = 6_MiB;
  return report;
}

TEST(Describe, BeginsWithThePeakAndItsParts) {
  const std::string text = describe(of_a_peak());
  EXPECT_THAT(text, StartsWith("Peak 8.0 MiB allocated, 20.0 MiB reserved, in backward of step 2\n"
                               "  parameters        2.0 MiB  ########\n"
                               "  activations       6.0 MiB  ########################\n"));
  EXPECT_THAT(text, Not(HasSubstr("gradients"))) << "there were none";
}

TEST(Describe, BeginsWithTheRefusalWhereItDoesNotFit) {
  trace::Report report = of_a_peak();
  report.out_of_memory.emplace();
  report.out_of_memory->tried = 4_MiB;
  report.out_of_memory->free = 1_MiB;
  report.out_of_memory->capacity = 24_MiB;
  EXPECT_THAT(
      describe(report),
      StartsWith("Does not fit: 4.0 MiB were requested when 1.0 MiB of 24.0 MiB were free.\n"));
}

TEST(Describe, NamesAsManyModulesAndTensorsAsAreAskedFor) {
  trace::Report report = of_a_peak();
  report.by_module = {{"", 8_MiB}, {"h.0", 5_MiB}, {"h.1", 3_MiB}};
  for (const char* module : {"h.0", "h.1"}) {
    trace::LiveTensor held;
    held.bytes = 1_MiB;
    held.category = trace::Category::activation;
    held.operation = "aten::mm";
    held.module = module;
    report.biggest.push_back(held);
  }
  EXPECT_THAT(describe(report, {.modules = 1, .tensors = 1}),
              AllOf(HasSubstr("5.0 MiB  h.0\n"), Not(HasSubstr("3.0 MiB  h.1")),
                    HasSubstr("1.0 MiB  activation, aten::mm in h.0\n"),
                    Not(HasSubstr("aten::mm in h.1"))));
}

TEST(Describe, NotesUnknownValuesThatWereCopied) {
  trace::Report report = of_a_peak();
  report.values_read_as_zero = 3;
  EXPECT_THAT(describe(report), HasSubstr("copied from the card 3 times"));
}

// It was the last line of the report: the answer above it had been taken for certain.
TEST(Describe, SaysFirstThatTheStepMayHaveBranchedOnUnknownValues) {
  trace::Report report = of_a_peak();
  report.values_read_as_zero = report.decided_by_unknown = 3;
  EXPECT_THAT(describe(report),
              StartsWith("The step may have branched on unknown values: it read 3 of them"));
  EXPECT_EQ(trace::report_from_json(to_json(report)).decided_by_unknown, 3U);
}

}  // namespace
}  // namespace headroom::dryrun

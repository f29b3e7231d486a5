// gpu_check as a process: without a GPU, with a fake driver, and with its checks on a simulated
// card that computes.
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/headroom_process.h"

namespace headroom::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

class GpuCheck : public ::testing::Test {
 protected:
  GpuCheck() {
    world.set("CUDA_VISIBLE_DEVICES", "");
  }  // hides the cards of a machine that has some

  [[nodiscard]] Outcome run(Arguments arguments) const {
    arguments.insert(arguments.begin(), GPU_CHECK);
    return world.run(arguments);
  }
  // The lines of the checks in this state.
  [[nodiscard]] static std::vector<std::string> lines_with(const Outcome& outcome,
                                                           const std::string& state) {
    std::vector<std::string> lines;
    for (const std::string& line : lines_of(outcome.out))
      if (line.starts_with(state + " ")) lines.push_back(line);
    return lines;
  }
  // All checks with this name or in this group on a simulated card.
  [[nodiscard]] Outcome on_sim(const std::string& name) const {
    return run({"--gpu", "sim:8GiB", "--only", name});
  }

  World world;
};

constexpr std::size_t kChecks = 28, kOfPrediction = 12;

TEST_F(GpuCheck, EndsWith69WithoutAGpuAndFailsNothing) {
  const Outcome outcome = run({});
  EXPECT_EQ(outcome.exit_code, 69) << outcome.out;
  EXPECT_THAT(lines_with(outcome, "ok"), Each(HasSubstr("texts")));
  EXPECT_THAT(lines_with(outcome, "ok"), SizeIs(1));
  EXPECT_THAT(lines_with(outcome, "not run here"), SizeIs(kChecks - 1));
  EXPECT_THAT(outcome.err, StartsWith("gpu_check: no GPU"));
}

TEST_F(GpuCheck, AsksAFakeDriverWhatItCanAnswer) {
  world.driver(machine({card("24GiB"), card("80GiB")}));
  const Outcome outcome = run({});
  EXPECT_EQ(outcome.exit_code, 69) << outcome.out;
  EXPECT_THAT(lines_with(outcome, "ok"), SizeIs(2));
  EXPECT_THAT(lines_with(outcome, "ok"),
              Contains(AllOf(HasSubstr("driver"), HasSubstr("2 cards"))));
  EXPECT_THAT(lines_with(outcome, "not run here"), SizeIs(kChecks - 2));
}

TEST_F(GpuCheck, FailsWhereTheDriverLosesACard) {
  const Json lost{{"function", "nvmlDeviceGetMemoryInfo*"}, {"do", "GPU_IS_LOST"}};
  world.driver(machine({card("24GiB")}, {lost}));
  const Outcome outcome = run({"--only", "driver"});
  EXPECT_EQ(outcome.exit_code, 1) << outcome.out;
  EXPECT_THAT(lines_with(outcome, "failed"), Contains(HasSubstr("lost")));
}

TEST_F(GpuCheck, ListsItsChecksAndRunsNone) {
  const Outcome outcome = run({"--list"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(lines_of(outcome.out), SizeIs(kChecks));
  const Outcome group = run({"--list", "--only", "prediction"});
  EXPECT_THAT(lines_of(group.out), SizeIs(kOfPrediction));
  EXPECT_THAT(lines_of(group.out), Each(StartsWith("prediction.")));
}

TEST_F(GpuCheck, RefusesWrongArgumentsWith64) {
  for (const Arguments& wrong : std::vector<Arguments>{{"--only", "nonsense"},
                                                       {"--minutes", "0"},
                                                       {"--minutes", "soon"},
                                                       {"--gpu", "first"},
                                                       {"--gpu", "cuda:-1"},
                                                       {"--loud"}}) {
    const Outcome outcome = run(wrong);
    EXPECT_EQ(outcome.exit_code, 64) << wrong[0];
    EXPECT_THAT(outcome.err, HasSubstr("gpu_check --help"));
  }
}

TEST_F(GpuCheck, HelpHasExamplesAndExitCodes) {
  const Outcome outcome = run({"--help"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("gpu_check --json"), HasSubstr("69 no GPU")));
}

TEST_F(GpuCheck, StopsACheckWhenItsTimeIsOver) {
  const Outcome outcome =
      run({"--gpu", "sim:8GiB", "--minutes", "0.0001", "--only", "texts", "--only", "commit"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(lines_with(outcome, "failed"), SizeIs(2)) << outcome.out;
}

TEST_F(GpuCheck, WritesAllFiguresAsJson) {
  const std::string path = world.path("figures.json");
  ASSERT_EQ(run({"--gpu", "sim:8GiB", "--only", "texts", "--only", "prediction.deit_tiny_fp32",
                 "--json", path})
                .exit_code,
            0);
  const Json document = Json::parse(std::ifstream(path));
  EXPECT_EQ(document["gpu"], "sim:8GiB");
  ASSERT_EQ(document["checks"].size(), 2U);
  const Json& figures = document["checks"][1]["figures"];
  EXPECT_EQ(figures["settings"]["batch"], 4);
  EXPECT_EQ(figures["measured"]["process"], nullptr) << "a simulated card has no process in NVML";
}

TEST_F(GpuCheck, CannotWriteIntoAFolderThatIsNotThere) {
  const Outcome outcome = run({"--only", "texts", "--json", world.path("none/figures.json")});
  EXPECT_EQ(outcome.exit_code, 73) << outcome.err;
}

// ---- The code of the checks, on a simulated card that computes

TEST_F(GpuCheck, PredictionsAreExactOnASimulatedCard) {
  const Outcome outcome = on_sim("prediction.deit_tiny_fp32");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
  EXPECT_THAT(lines_with(outcome, "ok"),
              Contains(AllOf(HasSubstr("allocated"), HasSubstr("reserved"))));
  EXPECT_THAT(lines_with(outcome, "ok"), Each(HasSubstr("(+0.00%), reserved")));
}

TEST_F(GpuCheck, PredictsEachModelAndSkipsThoseThatDoNotFit) {
  const Outcome outcome = run({"--gpu", "sim:50MiB", "--only", "prediction"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
  const auto skipped = lines_with(outcome, "not run here");
  EXPECT_THAT(skipped, SizeIs(kOfPrediction));
  EXPECT_THAT(skipped, Each(AllOf(HasSubstr("  needs "), HasSubstr("50.0 MiB are free"))));
}

class OnASimulatedCard : public GpuCheck, public ::testing::WithParamInterface<const char*> {};

TEST_P(OnASimulatedCard, Passes) {
  const Outcome outcome = on_sim(GetParam());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
  EXPECT_THAT(lines_with(outcome, "ok"), SizeIs(1));
}

INSTANTIATE_TEST_SUITE_P(Checks, OnASimulatedCard,
                         ::testing::Values("library", "commit", "kernels", "states",
                                           "out_of_memory", "refusals", "offload", "spill",
                                           "quantised", "train_step", "team.replicas",
                                           "team.stages"),
                         [](const auto& check) {
                           std::string name = check.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

// cuBLAS's workspace is part of the model of an H100.
TEST_F(GpuCheck, RefusesTheWorkspaceOnASimulatedH100) {
  const Outcome outcome = run({"--gpu", "sim:H100 PCIe", "--only", "refusals"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("workspace: cuda_caching_allocator"));
}

}  // namespace
}  // namespace headroom::testing

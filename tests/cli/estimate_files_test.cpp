// The files that `headroom estimate` writes: traces and pages.
#include <gmock/gmock.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "headroom/base/file.h"
#include "tests/cli/with_engine.h"

namespace headroom {
namespace {

using testing::estimate;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::WithEngine;

TEST(EstimateCommand, WritesATraceThatReplays) {
  const WithEngine world;
  const std::string trace = world.path("step.hrtrace");
  const Json document = estimate({"gpt2", "--trace", trace, "--json"}, world).json();
  const Json replayed = world.headroom({"trace", "replay", trace, "--json"}).json();
  EXPECT_EQ(replayed.at("allocated").at("peak"), document.at("peak").at("allocated_bytes"));
}

TEST(EstimateCommand, WritesAPageWithTheSamePeak) {
  const WithEngine world;
  const std::string page = world.path("step.html");
  const Json document =
      estimate({"gpt2", "--batch", "64", "--html", page, "--json", "--gpus", "RTX 4090"}, world)
          .json();
  const std::string text = read_input(page);
  const Json& peak = document.at("peak");
  const auto has = [&](const std::string& part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has(R"("allocated_bytes":)" + peak.at("allocated_bytes").dump()));
  EXPECT_TRUE(has(R"("reserved_bytes":)" + peak.at("reserved_bytes").dump()));
  EXPECT_TRUE(has("--checkpointing full needs")) << "what would have fitted";
  EXPECT_TRUE(has("too much")) << "the verdict";
  EXPECT_EQ(estimate({"gpt2", "--quick", "--html", page}, world).exit_code, 64);
}

std::int64_t capacity_of(const std::string& page) {
  const std::string text = read_input(page), key = R"("capacity_bytes":)";
  return std::stoll(text.substr(text.find(key) + key.size(), 20));
}

// The run is one without a limit; the page draws the card beside it, and so does a later report.
TEST(EstimateCommand, ThePageOfARunThatDoesNotFitKnowsTheCard) {
  const WithEngine world;
  const std::string page = world.path("a.html"), trace = world.path("a.hrtrace"),
                    later = world.path("b.html");
  const Json document = estimate({"gpt2", "--batch", "64", "--html", page, "--trace", trace,
                                  "--json", "--gpus", "RTX 4090"},
                                 world)
                            .json();
  const std::int64_t usable = document.at("device").at("usable_bytes").get<std::int64_t>();
  EXPECT_LT(capacity_of(page), document.at("peak").at("reserved_bytes").get<std::int64_t>());
  EXPECT_LT(capacity_of(page), usable) << "without the CUDA context";
  EXPECT_GT(capacity_of(page), usable * 9 / 10);
  const Outcome report = world.headroom({"trace", "report", trace, "--out", later});
  EXPECT_EQ(report.exit_code, 0) << report.err;
  EXPECT_EQ(capacity_of(later), capacity_of(page));
  EXPECT_EQ(world.headroom({"trace", "replay", trace, "--json"}).json().at("allocated").at("peak"),
            document.at("peak").at("allocated_bytes"));
}

// Other settings lay out segments in another way; the trace and the page replay with those of the
// run.
TEST(EstimateCommand, TheTraceKnowsTheAllocatorsSettings) {
  const WithEngine world;
  const std::string page = world.path("a.html"), trace = world.path("a.hrtrace");
  const Json peak = estimate({"gpt2", "--batch", "4", "--allocator", "expandable_segments:True",
                              "--html", page, "--trace", trace, "--json"},
                             world)
                        .json()
                        .at("peak");
  const std::string text = read_input(page);
  for (const char* figure : {"allocated_bytes", "reserved_bytes"}) {
    EXPECT_NE(text.find("\"" + std::string(figure) + "\":" + peak.at(figure).dump()),
              std::string::npos)
        << figure;
  }
  const Json replayed = world.headroom({"trace", "replay", trace, "--json"}).json();
  EXPECT_EQ(replayed.at("allocated").at("peak"), peak.at("allocated_bytes"));
  EXPECT_EQ(replayed.at("reserved").at("peak"), peak.at("reserved_bytes"));
}

TEST(EstimateCommand, LooksAtItsOutputsBeforeTheRun) {
  const WithEngine world;
  const std::string page = world.path("step.html");
  EXPECT_EQ(estimate({"gpt2", "--html", "/nowhere/page.html"}, world).exit_code, 73);
  EXPECT_EQ(estimate({"gpt2", "--html", world.path("")}, world).exit_code, 73) << "a folder";
  EXPECT_EQ(estimate({"gpt2", "--html", "-"}, world).exit_code, 64);
  const Outcome twice = estimate({"gpt2", "--html", page, "--trace", page}, world);
  EXPECT_EQ(twice.exit_code, 64);
  EXPECT_THAT(twice.err, HasSubstr("step.html twice"));
  EXPECT_FALSE(std::filesystem::exists(page));
  const std::string step = world.path("train.py");
  write_file_atomically(step, "def make(): pass\n");
  EXPECT_EQ(estimate({step + ":make", "--html", step}, world).exit_code, 64);
  EXPECT_EQ(read_input(step), "def make(): pass\n") << "the user's program";
}

// The sum of a difference's parts of each category.
std::map<std::string, std::int64_t> by_category(const Json& difference) {
  std::map<std::string, std::int64_t> sums;
  for (const Json& part : difference.at("parts"))
    sums[part.at("category").get<std::string>()] += part.at("bytes").get<std::int64_t>();
  return sums;
}

// Each line that explains a difference holds against the two dry runs that it compares.
TEST(EstimateCommand, TracesDifferByWhatTheTwoDryRunsDiffer) {
  const WithEngine world;
  const std::vector<std::vector<std::string>> changes{{"--checkpointing", "full"},
                                                      {"--batch", "3"}};
  const std::string a = world.path("a.hrtrace"), b = world.path("b.hrtrace");
  const Json before = estimate({"gpt2", "--trace", a, "--json"}, world).json();
  for (std::vector<std::string> words : changes) {
    words.insert(words.begin(), "gpt2");
    words.insert(words.end(), {"--trace", b, "--json"});
    const Json after = estimate(words, world).json();
    const Json difference = world.headroom({"trace", "diff", a, b, "--json"}).json();
    EXPECT_EQ(difference.at("peak_difference_bytes").get<std::int64_t>(),
              after.at("peak").at("allocated_bytes").get<std::int64_t>() -
                  before.at("peak").at("allocated_bytes").get<std::int64_t>());
    const auto sums = by_category(difference);
    for (const auto& [key, bytes] : before.at("at_peak").items()) {
      const std::string category = key.substr(0, key.size() - std::string("_bytes").size());
      const auto found = sums.find(category);
      EXPECT_EQ(found == sums.end() ? 0 : found->second,
                after.at("at_peak").at(key).get<std::int64_t>() - bytes.get<std::int64_t>())
          << words[1] << ", " << category;
    }
    EXPECT_THAT(difference.at("reasons").dump(), HasSubstr(words[1].substr(2) + ": "));
  }
}

}  // namespace
}  // namespace headroom

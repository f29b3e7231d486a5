// What makes the peak of one trace higher than that of another.
#include "headroom/page/diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/page/page.h"
#include "tests/trace/written_events.h"

namespace headroom::page {
namespace {

using namespace headroom::literals;
using namespace headroom::trace;
using namespace headroom::trace::testing;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A step of a net with some layers: parameters, then an activation for each layer.
class Net {
 public:
  explicit Net(int layers, Bytes activation, About about = {}) : about_(std::move(about)) {
    for (int i = 0; i < layers; ++i) add(i, Category::parameter, Phase::init, 0, 2_MiB);
    for (int i = 0; i < layers; ++i) add(i, Category::activation, Phase::forward, 1, activation);
  }
  [[nodiscard]] Timeline timeline() const {
    const auto trace = trace_of(events_, about_, names_);
    return timeline_of(*trace);
  }

 private:
  void add(int layer, Category category, Phase phase, std::uint32_t step, Bytes bytes) {
    Event event = alloc(events_.size() + 1, bytes);
    event.module = names_.number("h." + std::to_string(layer) + ".mlp");
    event.category = category;
    event.phase = phase;
    event.step = step;
    events_.push_back(event);
  }

  About about_;
  Names names_;
  std::vector<Event> events_;
};

Bytes sum(const Difference& difference) {
  Bytes all;
  for (const DifferentPart& part : difference.parts) all += part.b - part.a;
  return all;
}

TEST(Diff, AddsUpToTheDifferenceOfThePeaks) {
  const Difference difference =
      difference_of(Net(3, Bytes{5'000'001}).timeline(), Net(4, Bytes{9'000'003}).timeline());
  EXPECT_EQ(sum(difference), difference.peak());
  EXPECT_EQ(difference.parts.front().category, "activations");
  EXPECT_EQ(difference.parts.front().module, "h.3.mlp");
  EXPECT_EQ(difference.parts.front().a, Bytes{0});
}

TEST(Diff, OfATraceWithItselfIsEmpty) {
  const Timeline timeline = Net(3, 5_MiB).timeline();
  const Difference difference = difference_of(timeline, timeline);
  EXPECT_EQ(difference.peak(), Bytes{0});
  EXPECT_THAT(difference.parts, IsEmpty());
  EXPECT_THAT(difference.reasons, IsEmpty());
}

TEST(Diff, FoldsModulesThatDifferInANumber) {
  const auto parts =
      folded(difference_of(Net(12, 4_MiB).timeline(), Net(12, 8_MiB).timeline()).parts);
  ASSERT_THAT(parts, SizeIs(1));
  EXPECT_EQ(parts[0].part.module, "h.*.mlp");
  EXPECT_EQ(parts[0].modules, 12U);
  EXPECT_EQ(parts[0].part.b - parts[0].part.a, 48_MiB);
}

TEST(Diff, SaysWhatChangedAndByHowMuch) {
  const Difference difference =
      difference_of(Net(2, 4_MiB, {.facts = {{"batch", "4"}, {"seq", "8"}}}).timeline(),
                    Net(3, 8_MiB, {.facts = {{"batch", "8"}, {"seq", "8"}}}).timeline());
  EXPECT_THAT(difference.reasons, Contains("batch: 4 in A, 8 in B"));
  EXPECT_THAT(difference.reasons, Contains("activations: 8.0 MiB in A, 24.0 MiB in B, 3.00 x"));
  EXPECT_THAT(difference.reasons, Contains("only in B: h.2.mlp, 10.0 MiB"));
  EXPECT_THAT(difference.reasons, ::testing::Not(Contains(HasSubstr("seq"))));
}

TEST(Diff, ComparesOneStepOnRequest) {
  const Timeline a = Net(2, 40_MiB).timeline(), b = Net(2, 60_MiB).timeline();
  EXPECT_EQ(difference_of(a, b, {.step = 0}).peak(), Bytes{0});
  EXPECT_EQ(difference_of(a, b, {.step = 1}).peak(), 40_MiB);
  EXPECT_LT(difference_of(a, b, {.step = 0}).b.reserved, b.reserved[b.reserved_peak]);
  EXPECT_THROW((void)difference_of(a, b, {.step = 7}), UsageError);
}

TEST(Diff, IsADocumentWhosePartsAddUp) {
  const Json json = to_json(difference_of(Net(3, 5_MiB).timeline(), Net(2, 7_MiB).timeline()));
  std::int64_t all = 0;
  for (const Json& part : json.at("parts")) all += part.at("bytes").get<std::int64_t>();
  EXPECT_EQ(all, json.at("peak_difference_bytes").get<std::int64_t>());
  EXPECT_EQ(json.at("per_step").size(), 2U);
}

// ---- The page ----

TEST(Page, HoldsTheDataAndNothingThatEndsItEarly) {
  const std::string page = page_of(
      Net(2, 5_MiB, {.facts = {{"command", "a </script><b>"}}}).timeline(), {.title = "<x> & y"});
  EXPECT_THAT(page, HasSubstr("<title>&lt;x> &amp; y</title>"));
  EXPECT_THAT(page, HasSubstr("a \\u003c/script>\\u003cb>"));
  EXPECT_THAT(page, HasSubstr(R"("allocated_bytes":14680064)"));
  EXPECT_THAT(page, ::testing::Not(HasSubstr("{{")));
}

TEST(Page, TakesATitleThatLooksLikeAMark) {
  const std::string page = page_of(Net(2, 5_MiB).timeline(), {.title = "{{data}}.pickle"});
  EXPECT_NE(page.find("<title>{{data}}.pickle</title>"), std::string::npos);
}

// A leak: nothing is freed, so that leaving out instants leaves out no tensor.
TEST(Page, OfALeakIsSmallEnoughAndSaysSo) {
  std::vector<Event> events;
  for (std::uint64_t i = 1; i <= 100'000; ++i)
    events.push_back(alloc(i, Bytes{static_cast<std::int64_t>(1 + i * 7919 % 1'000'003)}));
  const auto trace = trace_of(events, {.format = Format::plain});
  const Timeline timeline = timeline_of(*trace);
  const std::string page = page_of(timeline, {.title = "leak", .most_bytes = Bytes{600'000}});
  EXPECT_LE(page.size(), 600'000U);
  EXPECT_NE(page.find(R"("thinned":true)"), std::string::npos);
  EXPECT_EQ(page.find(R"("tensors_merged":0,)"), std::string::npos);
}

TEST(Page, OfManyRefusalsIsSmallEnough) {
  std::vector<Event> events{alloc(1, 30_MiB)};
  for (std::uint64_t i = 2; i <= 20'000; ++i) events.push_back(alloc(i, 30_MiB));
  const auto trace = trace_of(events, {.format = Format::plain});
  const Timeline timeline = timeline_of(*trace, {.setup = {.capacity = 40_MiB}});
  ASSERT_EQ(timeline.refusals.size(), 19'999U);
  const std::string page = page_of(timeline, {.title = "refused", .most_bytes = Bytes{600'000}});
  EXPECT_LE(page.size(), 600'000U);
  EXPECT_NE(page.find(R"("ooms_count":19999)"), std::string::npos);
}

TEST(Page, IsThinnedUntilItIsSmallEnough) {
  std::vector<Event> events;
  std::uint64_t seed = 1;
  for (std::uint64_t i = 1; i <= 60'000; ++i) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    events.push_back(alloc(i, Bytes{static_cast<std::int64_t>(1 + (seed >> 40))}));
    if (i > 100) events.push_back(free_requested(i - 100));
  }
  const auto trace = trace_of(events, {.format = Format::plain});
  const Timeline timeline = timeline_of(*trace);
  const std::string whole = page_of(timeline, {.title = "all"});
  const std::string thin = page_of(timeline, {.title = "all", .most_bytes = Bytes{500'000}});
  const auto has = [](const std::string& page, std::string_view text) {
    return page.find(text) != std::string::npos;
  };
  EXPECT_TRUE(has(whole, R"("thinned":false)"));
  EXPECT_LE(thin.size(), 500'000U);
  EXPECT_TRUE(has(thin, R"("thinned":true)"));
  const std::string peak =
      "\"allocated_bytes\":" + std::to_string(timeline.allocated[timeline.peak].count);
  EXPECT_TRUE(has(thin, peak)) << "the peak stays";
}

}  // namespace
}  // namespace headroom::page

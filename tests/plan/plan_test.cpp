#include "headroom/plan/plan.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"

namespace headroom::plan {
namespace {

TEST(Plan, SaysWhatItDoes) {
  EXPECT_EQ(to_string(Plan{}), "the whole batch at once");
  EXPECT_EQ(to_string(Plan{
                .micro_batch = 8, .techniques = {"checkpointing", "offload"}, .device = "cuda:1"}),
            "micro-batch 8, checkpointing, activations on the host, on cuda:1");
}

TEST(Plan, ComesBackFromItsDocument) {
  const Plan plan{.micro_batch = 8,
                  .techniques = {"checkpointing", "fused_loss", "offload"},
                  .allocator = "expandable_segments:True",
                  .device = "cuda:1"};
  EXPECT_EQ(plan_from(to_json(plan), "here"), plan);
  EXPECT_EQ(plan_from(Json{{"micro_batch", 8}}, "here"), Plan{.micro_batch = 8});
}

TEST(Plan, RefusesADocumentThatIsNone) {
  const auto refusal = [](const Json& document) -> std::string {
    try {
      static_cast<void>(plan_from(document, "plans.json line 3"));
    } catch (const InputError& error) {
      return error.sentence();
    }
    return "";
  };
  EXPECT_EQ(refusal(Json::array()), "plans.json line 3: expected a plan, received []");
  EXPECT_EQ(refusal({{"batch", 3}}), "plans.json line 3: no plan has a `batch`");
  EXPECT_EQ(refusal({{"micro_batch", "8"}}),
            "plans.json line 3: expected a number for `micro_batch`, received \"8\"");
  EXPECT_EQ(refusal({{"micro_batch", -1}}),
            "plans.json line 3: expected a `micro_batch` of 0 or more");
}

TEST(Plan, HasAMicroBatchForEachWayToCutABatch) {
  using Sizes = std::vector<std::int64_t>;
  EXPECT_EQ(micro_batches(10, {}), (Sizes{10, 5, 4, 3, 2, 1}));
  EXPECT_EQ(micro_batches(32, {.least = 4, .most = 31}), (Sizes{16, 11, 8, 7, 6, 5, 4}));
  EXPECT_EQ(micro_batches(3, {.fewest = 2}), Sizes{3}) << "2 and 1 would be too few";
  EXPECT_EQ(micro_batches(3, {.least = 4, .fewest = 4}), Sizes{3});
  EXPECT_EQ(micro_batches(32, {.least = 4, .most = 3}), Sizes{});
}

}  // namespace
}  // namespace headroom::plan

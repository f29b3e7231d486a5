#include "headroom/estimate/fit.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/dryrun/dry_run.h"
#include "headroom/estimate/training_step.h"
#include "headroom/gpu/profile.h"
#include "tests/estimate/card_of.h"
#include "tests/estimate/small_models.h"

namespace headroom::estimate {
namespace {

using namespace literals;
using model::Settings;
using ::testing::Field;
using ::testing::HasSubstr;

Settings short_rows() {
  Settings settings;
  settings.seq = kSmallLength;
  settings.image = kSmallImage;
  return settings;
}

Settings with_size(Settings settings, Over over, std::int64_t size) {
  if (over == Over::batch)
    settings.batch = size;
  else
    settings.seq = size;
  return settings;
}

// The verdict of `headroom estimate`.
bool fits(const model::NamedModel& model, const Settings& settings,
          const gpu::SimulatedCard& card) {
  const auto make = [&](c10::Device device) {
    return training_step(model.config, settings, device).subject;
  };
  return dryrun::dry_run(card, make, {.steps = settings.steps, .keep_trace = false}).fits();
}

// By doubling and halving, which knows nothing of allocators.
std::int64_t by_halving(const std::function<bool(std::int64_t)>& fits) {
  std::int64_t low = 0, high = 1;
  while (fits(high)) low = std::exchange(high, high * 2);
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

// ---- Over a grid of models, cards and settings

struct Way {
  const char* name;
  Json settings;
};

const std::vector<Way>& ways() {
  static const std::vector<Way> all = {
      {"as it is", Json::object()},
      {"eager, foreach, clipped",
       {{"attention", "eager"}, {"optimizer_impl", "foreach"}, {"clip", 1.0}}},
      {"bfloat16, sgd, accumulated",
       {{"dtype", "bfloat16"}, {"optimizer", "sgd"}, {"accumulation", 2}}},
      {"checkpointed", {{"checkpointing", "full"}, {"optimizer", "adafactor"}}},
      {"checkpointed by twos, mixed",
       {{"checkpointing", "every:2"}, {"checkpointing_kind", "reentrant"}, {"autocast", "bf16"}}},
      {"loss by chunks", {{"loss", "chunked:100"}}},
      {"fused loss", {{"loss", "fused"}}},
  };
  return all;
}

bool can_run(const model::NamedModel& model, const Settings& settings) {
  const auto make = [&](c10::Device device) {
    return training_step(model.config, settings, device).subject;
  };
  try {
    return dryrun::run_steps(dryrun::card_for("unlimited"), make, 1, {}).fits;
  } catch (const UsageError&) {  // a task or a way that this model does not have
    return false;
  }
}

struct Tally {
  std::size_t cases = 0, probes = 0, most = 0, proven = 0;
};

// The size found.
std::int64_t expect_end(const model::NamedModel& model, const Settings& settings,
                        const gpu::SimulatedCard& card, Tally& tally) {
  const Largest found = fit(model, settings, card).found;
  const auto fits_at = [&](std::int64_t size) {
    return fits(model, with_size(settings, Over::batch, size), card);
  };
  const std::int64_t size = found.size.value_or(0);
  EXPECT_TRUE(size == 0 || fits_at(size)) << size;
  EXPECT_FALSE(fits_at(size + 1)) << size;
  EXPECT_LE(found.probes.size(), std::size_t{kMostProbes});
  ++tally.cases;
  tally.probes += found.probes.size();
  tally.most = std::max(tally.most, found.probes.size());
  tally.proven += found.is_proven;
  return size;
}

// For models so small that thousands of rows fit, the allocator's steps of 2 MiB leave several
// boundaries, because thousands of rows are whole steps. Each of them is a right answer.
TEST(FitOverAGrid, EndsWhereOneMoreRowDoesNotFitWithAtMostSixProbes) {
  Tally tally;
  std::size_t which = 0;
  for (const std::string& name : one_of_each_type()) {
    const model::NamedModel model = small(name);
    ++which;
    for (const Way& way : ways()) {
      if (++which % 3 == 0) continue;  // two of three are enough, others for each type
      Settings settings = model::settings_from_json(way.settings);
      settings.seq = kSmallLength;
      settings.image = kSmallImage;
      if (!can_run(model, settings)) continue;
      const Bytes total = std::array{400_MiB, 700_MiB, 1_GiB}[tally.cases % 3];
      SCOPED_TRACE(name + ", " + way.name + ", " + to_string(total));
      expect_end(model, settings, card_of(total), tally);
    }
  }
  EXPECT_GE(tally.cases, 60U);
  EXPECT_EQ(tally.proven, tally.cases);
  RecordProperty("pairs", static_cast<int>(tally.cases));
  RecordProperty("probes", static_cast<int>(tally.probes));
}

TEST(Fit, FindsTheTrueMaximumOfPublishedModelsOnCardsOfTheCatalogue) {
  Tally tally;
  Settings settings;
  settings.seq = 128;
  for (const char* name : {"gpt2", "pythia-70m", "deit-tiny", "resnet18"})
    for (const char* card : {"RTX 3080", "A100 80GB"}) {
      SCOPED_TRACE(std::string(name) + ", " + card);
      const model::NamedModel model = model::model_named(name);
      const std::int64_t found = expect_end(model, settings, dryrun::card_for(card), tally);
      EXPECT_EQ(found, by_halving([&](std::int64_t size) {
                  return fits(model, with_size(settings, Over::batch, size),
                              dryrun::card_for(card));
                }));
    }
  EXPECT_EQ(tally.proven, tally.cases);
}

// ---- What it is asked

TEST(Fit, SaysTheLargestBatchWithItsNeighbourAndTenPercentLess) {
  const FitResult result =
      fit(model::model_named("gpt2"), short_rows(), dryrun::card_for("RTX 4090"));
  const std::int64_t size = result.found.size.value();
  EXPECT_EQ(result.found.recommended, size * 9 / 10);
  const Json json = to_json(answer_of(result));
  EXPECT_EQ(json.at("max_batch"), size);
  EXPECT_EQ(json.at("recommended_batch"), size * 9 / 10);
  EXPECT_EQ(json.at("capped"), false);
  const Bytes room =
      result.card.total - result.card.reserved - *gpu::find_profile(result.card.profile)->context;
  std::set<std::pair<std::int64_t, bool>> probed;
  for (const Json& probe : json.at("probes")) {
    probed.emplace(probe.at("batch"), probe.at("fits"));
    const Bytes reserved{probe.at("peak_reserved_bytes").get<std::int64_t>()};
    EXPECT_EQ(reserved <= room, probe.at("fits"));
  }
  EXPECT_THAT(probed, testing::IsSupersetOf({std::pair(size, true), std::pair(size + 1, false)}));
}

TEST(Fit, SaysHowMuchABatchThatDoesNotFitNeeds) {
  const model::NamedModel model = small("gpt2");
  const Probe last = fit(model, short_rows(), card_of(64_MiB)).found.probes.back();
  ASSERT_FALSE(last.fits);
  const auto make = [&](c10::Device device) {
    return training_step(model.config, with_size(short_rows(), Over::batch, last.size), device)
        .subject;
  };
  EXPECT_EQ(last.peak_reserved, dryrun::dry_run("unlimited", make).peak.reserved);
}

TEST(Fit, IsNothingWhenTheSmallestBatchDoesNotFit) {
  const FitResult result = fit(model::model_named("gpt2"), short_rows(), dryrun::card_for("1GiB"));
  EXPECT_EQ(result.found.size, std::nullopt);
  const Json json = to_json(answer_of(result));
  EXPECT_TRUE(json.at("max_batch").is_null());
  EXPECT_TRUE(json.at("recommended_batch").is_null());
}

TEST(Fit, OfSeveralCardsTheOneWithTheLeastUsableMemoryDecides) {
  const model::NamedModel model = small("gpt2");
  const FitResult result =
      fit(model, short_rows(), {card_of(100_MiB), card_of(64_MiB), card_of(80_MiB)});
  EXPECT_EQ(result.card.total, 64_MiB);
  EXPECT_EQ(result.found.size, fit(model, short_rows(), card_of(64_MiB)).found.size);
  EXPECT_THROW(static_cast<void>(fit(model, short_rows(), std::vector<gpu::SimulatedCard>{})),
               UsageError);
}

// ---- Lengths

TEST(FitOverLengths, FindsTheLongestSequence) {
  Settings settings;
  settings.batch = 2;
  for (const char* name : {"llama-3.2-1b", "qwen2.5-0.5b"}) {
    const model::NamedModel model = model::model_named(name);
    const gpu::SimulatedCard card = dryrun::card_for("RTX 4090");
    const Largest found = fit(model, settings, card, {.over = Over::seq}).found;
    ASSERT_TRUE(found.size) << name;
    EXPECT_TRUE(found.is_proven);
    EXPECT_TRUE(fits(model, with_size(settings, Over::seq, *found.size), card)) << *found.size;
    EXPECT_FALSE(fits(model, with_size(settings, Over::seq, *found.size + 1), card));
  }
}

// An image model was said to have taken 512 tokens.
TEST(Fit, SaysTheSizesThatItTook) {
  const auto settings_of = [](const char* name, Over over) {
    return fit(small(name), {}, dryrun::card_for("24GiB"), {.over = over, .at_most = 1}).settings;
  };
  const Settings resnet = settings_of("resnet18", Over::batch);
  EXPECT_EQ(resnet.task, model::Task::image_classification);
  EXPECT_EQ(resnet.image, 224);
  EXPECT_EQ(resnet.seq, std::nullopt);
  EXPECT_NE(settings_of("t5-small", Over::batch).target_seq, std::nullopt);
  EXPECT_EQ(settings_of("t5-small", Over::seq).target_seq, std::nullopt) << "it goes along";
}

TEST(FitOverLengths, EndsWhereTheModelsPositionsDo) {
  const FitResult gpt2 =
      fit(model::model_named("gpt2"), {}, dryrun::card_for("RTX 4090"), {.over = Over::seq});
  EXPECT_EQ(gpt2.found.size, 1024);
  EXPECT_TRUE(gpt2.found.capped);
  EXPECT_EQ(to_json(answer_of(gpt2)).at("max_seq"), 1024);
}

TEST(FitOverLengths, IsRefusedForImages) {
  EXPECT_THAT(
      [] {
        static_cast<void>(fit(model::model_named("resnet18"), {}, dryrun::card_for("RTX 4090"),
                              {.over = Over::seq}));
      },
      testing::ThrowsMessage<UsageError>(HasSubstr("takes images")));
}

// ---- What nothing can run

TEST(Fit, RefusesSettingsThatOnlyAFormulaCovers) {
  Settings settings;
  settings.offload.gradients = true;
  settings.world = 2;
  EXPECT_THAT(
      [&] {
        static_cast<void>(fit(model::model_named("gpt2"), settings, dryrun::card_for("RTX 4090")));
      },
      testing::ThrowsMessage<UsageError>(testing::AllOf(
          HasSubstr("--offload gradients"), HasSubstr("--world 2"), HasSubstr("--quick"))));
}

}  // namespace
}  // namespace headroom::estimate

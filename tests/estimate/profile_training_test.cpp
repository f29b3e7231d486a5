#include "headroom/estimate/profile_training.h"

#include <gmock/gmock.h>

#include <map>

#include "headroom/forecast/step_time.h"

namespace headroom::estimate {
namespace {

using profile::GroupBy;
using profile::ProfileRow;
using BytesByName = std::map<std::string, std::int64_t>;

model::Settings two_rows() {
  model::Settings settings;
  settings.batch = 2;
  return settings;
}

// From the trace of a dry run: what the steps allocated, by module, or by operator without its
// overload: a profile's names are PyTorch's.
std::string name_of(const trace::Trace& trace, const trace::Event& event, bool by_module) {
  const std::string name(trace.names.text(by_module ? event.module : event.operation));
  return by_module ? name : name.substr(0, name.find('.'));
}

BytesByName from_trace(const trace::Trace& trace, bool by_module) {
  BytesByName bytes;
  for (const trace::Event& event : trace.events)
    if (event.kind == trace::Kind::alloc && event.step > 0)
      bytes[name_of(trace, event, by_module)] += event.bytes.count;
  return bytes;
}

BytesByName from_profile(const profile::Profile& profile, GroupBy group) {
  BytesByName bytes;
  for (const ProfileRow& row : rows(profile, {.row_limit = 0, .group_by = group}))
    if (row.self_bytes.count != 0) bytes[row.name] += row.self_bytes.count;
  return bytes;
}

double device_seconds(const profile::Profile& profile) {
  double sum = 0;
  for (const ProfileRow& row : rows(profile, {.row_limit = 0})) sum += row.self_device_s.value();
  return sum;
}

class ProfileOfAModel : public ::testing::TestWithParam<const char*> {};

TEST_P(ProfileOfAModel, HasTheBytesOfTheDryRunsLedgerByOperatorAndByModule) {
  const model::NamedModel model = model::model_named(GetParam());
  const model::Settings settings = two_rows();
  const gpu::SimulatedCard card = dryrun::card_for("unlimited");
  const Estimate estimate = estimate_memory(model, settings, card, {.keep_trace = true});
  const TrainingProfile found = profile_training(model, settings, card);
  const trace::Trace& trace = *estimate.report.trace;
  EXPECT_EQ(from_profile(found.profile, GroupBy::operation), from_trace(trace, false));
  EXPECT_EQ(from_profile(found.profile, GroupBy::shape), from_trace(trace, false));
  EXPECT_EQ(from_profile(found.profile, GroupBy::module), from_trace(trace, true));
}

INSTANTIATE_TEST_SUITE_P(Models, ProfileOfAModel,
                         ::testing::Values("gpt2", "bert-base", "t5-small", "resnet18",
                                           "vit-base"));

TEST(ProfileTraining, AnswersForACardThatIsTooSmallWithoutItsLimit) {
  const model::NamedModel gpt2 = model::model_named("gpt2");
  const TrainingProfile small = profile_training(gpt2, two_rows(), dryrun::card_for("1GiB"));
  const TrainingProfile large = profile_training(gpt2, two_rows(), dryrun::card_for("24GiB"));
  EXPECT_FALSE(small.fits);
  EXPECT_TRUE(large.fits);
  EXPECT_EQ(from_profile(small.profile, GroupBy::operation),
            from_profile(large.profile, GroupBy::operation));
}

// Two ways to count the same work: operator by operator as they run, and in closed form.
TEST(ProfileTraining, AddsUpToAboutTheForecastOfTheStep) {
  const gpu::CatalogueCard& card = gpu::card_named("RTX 4090");
  model::Settings settings = two_rows();
  settings.steps = 1;
  for (const char* name : {"gpt2", "bert-base", "resnet50", "llama-3.2-1b", "vit-base"}) {
    const model::NamedModel model = model::model_named(name);
    const TrainingProfile found = profile_training(model, settings, dryrun::card_for("RTX 4090"));
    const double forecast =
        forecast::step_seconds(forecast::forecast_of(model.config, found.settings), &card);
    const double ratio = device_seconds(found.profile) / forecast;
    EXPECT_GT(ratio, 0.7) << name;
    EXPECT_LT(ratio, 1.4) << name;
  }
}

TEST(ProfileTraining, TakesDeviceTimeFromTheCardsRates) {
  const model::NamedModel gpt2 = model::model_named("gpt2");
  const auto seconds = [&](const char* card) {
    const TrainingProfile found = profile_training(gpt2, two_rows(), dryrun::card_for(card));
    EXPECT_TRUE(found.profile.simulated_time);
    return device_seconds(found.profile);
  };
  EXPECT_LT(seconds("H100 SXM"), 0.5 * seconds("RTX 3060"));
}

}  // namespace
}  // namespace headroom::estimate

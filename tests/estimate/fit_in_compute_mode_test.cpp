// The answer of fit, held against training that really computes: on a simulated card of the same
// capacity the found batch trains, and one more row is out of memory.
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "headroom/dryrun/dry_run.h"
#include "headroom/estimate/fit.h"
#include "headroom/estimate/training_step.h"
#include "headroom/sim/simulate.h"
#include "tests/estimate/filled_step.h"
#include "tests/estimate/small_models.h"

namespace headroom::estimate {
namespace {

using model::Settings;
using torch::Tensor;

// Two steps with numbers. False: out of memory.
bool trains(const model::NamedModel& model, const Settings& settings,
            const gpu::SimulatedCard& card) {
  const sim::Simulation box =
      sim::simulate(gpu::SimulatedBox{.cards = {card}, .name = {}}, {.mode = sim::Mode::compute});
  try {
    const TrainingStep step = filled_step(model.config, settings, box.device(0));
    for (int i = 0; i < 2; ++i) step.subject.step();
    for (const Tensor& parameter : step.model->module().parameters())
      EXPECT_TRUE(parameter.cpu().isfinite().all().item<bool>());
    return true;
  } catch (const c10::OutOfMemoryError&) {
    return false;
  }
}

// A card on which `rows` just fit.
gpu::SimulatedCard card_for_rows(const model::NamedModel& model, Settings settings,
                                 std::int64_t rows, const std::string& profile) {
  settings.batch = rows;
  gpu::SimulatedCard card{
      .name = "a card", .total = allocator::kUnlimited, .reserved = {}, .profile = profile};
  const auto make = [&](c10::Device device) {
    return training_step(model.config, settings, device).subject;
  };
  card.total = dryrun::dry_run(card, make).peak.process;
  return card;
}

Settings settings_of(std::size_t which) {
  static const std::vector<Json> ways = {
      Json::object(),
      {{"attention", "eager"}, {"optimizer_impl", "loop"}},
      {{"optimizer", "sgd-momentum"}, {"optimizer_impl", "foreach"}, {"clip", 1.0}},
      {{"accumulation", 2}, {"zero_grad", "zero"}},
      {{"optimizer", "adafactor"}, {"hold_outputs", true}}};
  Settings settings = model::settings_from_json(ways[which % ways.size()]);
  settings.seq = kSmallLength;
  settings.image = kSmallImage;
  return settings;
}

TEST(FitOfEveryModelType, IsTheBatchThatReallyTrainsAndOneMoreRowDoesNot) {
  std::size_t which = 0;
  for (const std::string& name : one_of_each_type()) {
    const model::NamedModel model = small(name);
    Settings settings = settings_of(which);
    const std::string profile =
        which % 3 == 0 ? dryrun::card_for("RTX 4090").profile : std::string();
    const gpu::SimulatedCard card =
        card_for_rows(model, settings, 5 + static_cast<std::int64_t>(which % 4), profile);
    ++which;
    SCOPED_TRACE(name + " on " + to_string(card.total));
    const Largest found = fit(model, settings, card).found;
    ASSERT_TRUE(found.size);
    EXPECT_TRUE(found.is_proven);
    settings.batch = *found.size;
    EXPECT_TRUE(trains(model, settings, card)) << *found.size;
    ++settings.batch;
    EXPECT_FALSE(trains(model, settings, card)) << settings.batch;
  }
  EXPECT_GE(which, 20U);
}

}  // namespace
}  // namespace headroom::estimate

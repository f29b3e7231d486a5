#include "headroom/plan/savings.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "headroom/forecast/step_time.h"
#include "headroom/plan/policies.h"

namespace headroom::plan {
namespace {

std::int64_t effective_batch(const model::Settings& settings) {
  return settings.batch * settings.accumulation;
}

double seconds_per_token(const forecast::Forecast& forecast, const gpu::CatalogueCard* card) {
  const model::Settings& settings = forecast.settings;
  return step_seconds(forecast, card) / static_cast<double>(effective_batch(settings)) /
         static_cast<double>(settings.seq.value_or(1));
}

std::optional<Bytes> room_of(const SavingOptions& options) {
  if (options.room || options.card == nullptr) return options.room;
  const gpu::DeviceProfile* profile = gpu::find_profile(options.card->profile);
  const Bytes context = profile != nullptr ? profile->context.value_or(Bytes{}) : Bytes{};
  return plannable(options.card->cuda_total.value_or(options.card->total) - context);
}

auto rank_of(const Saving& saving) {
  return std::tuple(!saving.fits, saving.is_last_resort, saving.changes_training,
                    std::round(saving.time_factor * 100), -saving.saves.count);
}

void keep_one_size(std::vector<Saving>& all) {
  const Saving* kept = nullptr;
  for (const Saving& one : all)
    if (one.is_a_size && (kept == nullptr || !kept->fits)) kept = &one;
  if (kept == nullptr) return;
  const std::string option = kept->option;
  std::erase_if(all, [&](const Saving& one) { return one.is_a_size && one.option != option; });
}

}  // namespace

std::vector<Saving> savings(const model::ModelConfig& config, const model::Settings& settings,
                            const SavingOptions& options) {
  const gpu::DeviceProfile* profile =
      options.card != nullptr ? gpu::find_profile(options.card->profile) : nullptr;
  const forecast::Forecast now = forecast::forecast_of(config, settings, profile);
  const double seconds = seconds_per_token(now, options.card);
  const std::optional<Bytes> room = room_of(options);
  const Situation situation{config, now.settings, options.card, options.gpus};
  std::vector<Saving> all;
  for (const Technique& technique : techniques()) {
    if (!technique.changes) continue;
    for (Change& change : technique.changes(situation)) {
      if (options.allows && !options.allows(change.settings)) continue;
      const forecast::Forecast then = forecast::forecast_of(config, change.settings, profile);
      Saving saving{std::move(change)};
      saving.needs = then.reserved;
      saving.process = then.process;
      saving.saves = now.at_peak.total() - then.at_peak.total();
      saving.saves_process = now.process - then.process;
      if (saving.saves.count <= 0) continue;
      saving.time_factor = seconds_per_token(then, options.card) / seconds;
      saving.fits = !room || then.reserved <= *room;
      saving.can_run = !options.can_run || options.can_run(saving.settings);
      all.push_back(std::move(saving));
    }
  }
  keep_one_size(all);
  std::sort(all.begin(), all.end(),
            [](const Saving& a, const Saving& b) { return rank_of(a) < rank_of(b); });
  return all;
}

}  // namespace headroom::plan

#include "headroom/plan/model_pricer.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "headroom/forecast/by_layer.h"
#include "headroom/forecast/step_time.h"
#include "headroom/gpu/links.h"
#include "headroom/model/shapes.h"

namespace headroom::plan {
namespace {

// What is certain of the closed form's activations, and of what another stage needed beyond.
constexpr double kSure = 0.985, kSureBeyond = 0.9;
// Layers of one list that are built differently are taken as this share of their mean.
constexpr double kSureOfMixed = 0.6;
constexpr int kSavedAfter = 16;  // dry runs

Bytes share_of(Bytes bytes, double share) {
  return Bytes{static_cast<std::int64_t>(share * static_cast<double>(bytes.count))};
}

bool are_mixed(const std::vector<int>& kinds) {
  return std::adjacent_find(kinds.begin(), kinds.end(), std::not_equal_to<>()) != kinds.end();
}

}  // namespace

std::vector<int> layer_kinds(const model::ModelConfig& config, const model::Settings& settings) {
  std::vector<int> kinds;
  int of_module = 0;
  for (const forecast::ModuleWork& module : forecast::forecast_of(config, settings).work) {
    for (const int kind : module.kinds) kinds.push_back(of_module + kind);
    of_module += 1000;
  }
  return kinds;
}

ModelPricer::ModelPricer(model::ModelConfig config, std::vector<PricedTraining> trainings,
                         RatedCards cards, PriceStage dry_run)
    : config_(std::move(config)),
      trainings_(std::move(trainings)),
      cards_(std::move(cards)),
      dry_run_(std::move(dry_run)) {
  const std::vector<int> kinds = layer_kinds(config_, trainings_.front().settings);
  layers_ = static_cast<std::int64_t>(kinds.size());
  for (std::int64_t count = 1; count <= layers_; ++count) {
    auto& firsts = first_like_.emplace_back();
    for (std::int64_t first = 0; first + count <= layers_; ++first) {
      std::int64_t like = first;
      const bool is_inside = first > 0 && first + count < layers_;
      for (std::int64_t other = 1; is_inside && like == first && other < first; ++other)
        if (std::equal(kinds.begin() + first - 1, kinds.begin() + first + count + 1,
                       kinds.begin() + other - 1))
          like = other;
      firsts.push_back(like);
    }
  }
  for (std::size_t i = 0; i < trainings_.size(); ++i)
    for (const auto& [known, price] : trainings_[i].book.prices()) {
      Stage stage = known;
      stage.form.techniques = static_cast<int>(i);
      if (stage.first + stage.count <= layers_) learn(stage, price);
    }
}

ModelPricer::Memory& ModelPricer::Memory::operator+=(const Memory& more) {
  resident += more.resident;
  gradients += more.gradients;
  kept += more.kept;
  kept_checkpointed += more.kept_checkpointed;
  return *this;
}

const ModelPricer::OfRows& ModelPricer::of_rows(const Form& form, const gpu::DeviceProfile* chip) {
  const auto key = std::tuple(form.techniques, form.rows, chip);
  const auto known = of_rows_.find(key);
  if (known != of_rows_.end()) return known->second;
  model::Settings settings = trainings_.at(static_cast<std::size_t>(form.techniques)).settings;
  settings.batch = form.rows;
  settings.accumulation = 1;
  OfRows of;
  of.plain = forecast::forecast_of(config_, settings, chip);
  settings.checkpoint_every = 1;
  of.checkpointed = forecast::forecast_of(config_, settings, chip);
  // The first block of each of their lists is larger.
  const bool is_convolutional = config_.type() == "resnet" || config_.type() == "convnext";
  const auto by_layer = [](const forecast::Forecast& plain, const forecast::Forecast& checkpointed,
                           const std::function<double(const forecast::ModuleWork&)>& sure,
                           double sure_kept) {
    return forecast::by_layer<Memory>(plain, [&](const forecast::ModuleWork& module) {
      const auto& again = checkpointed.work[static_cast<std::size_t>(&module - plain.work.data())];
      const double share =
          sure(module) / static_cast<double>(std::max<std::int64_t>(1, module.layers));
      return Memory{share_of(module.resident, share), share_of(module.gradients, share),
                    share_of(module.kept, sure_kept * share),
                    share_of(again.kept, sure_kept * share)};
    });
  };
  const auto all = [](const forecast::ModuleWork&) { return 1.0; };
  const auto sure = [&](const forecast::ModuleWork& module) {
    return is_convolutional || are_mixed(module.kinds) ? kSureOfMixed : 1.0;
  };
  const auto sums_of = [](const std::vector<Memory>& layers) {
    std::vector<Memory> upto(1);
    for (const Memory& layer : layers) {
      upto.push_back(upto.back());
      upto.back() += layer;
    }
    return upto;
  };
  of.upto = sums_of(by_layer(of.plain, of.checkpointed, all, 1));
  of.surely_upto = sums_of(by_layer(of.plain, of.checkpointed, sure, kSure));
  if (settings.offload.activations) {
    settings.offload.activations = false;
    const forecast::Forecast checkpointed = forecast::forecast_of(config_, settings, chip);
    settings.checkpoint_every = of.plain.settings.checkpoint_every;
    of.moved = by_layer(forecast::forecast_of(config_, settings, chip), checkpointed, all, 1);
  }
  return of_rows_.emplace(key, std::move(of)).first->second;
}

// ---- Memory ----

ModelPricer::Memory ModelPricer::between(const std::vector<Memory>& upto, const Stage& stage) {
  const Memory& begin = upto[static_cast<std::size_t>(stage.first)];
  const Memory& end = upto[static_cast<std::size_t>(stage.first + stage.count)];
  return {end.resident - begin.resident, end.gradients - begin.gradients, end.kept - begin.kept,
          end.kept_checkpointed - begin.kept_checkpointed};
}

ModelPricer::Memory ModelPricer::memory_of(const Stage& stage) {
  return between(of_rows(stage.form, cards_.chips.front()).upto, stage);
}

StageMemory ModelPricer::surely(const Stage& stage) {
  StageMemory least;
  for (std::size_t chip = 0; chip < cards_.chips.size(); ++chip) {
    const Memory memory = between(of_rows(stage.form, cards_.chips[chip]).surely_upto, stage);
    const StageMemory on{memory.resident, requested(stage, memory), {}};
    least = chip == 0 ? on
                      : StageMemory{std::min(least.resident, on.resident),
                                    std::min(least.reserved, on.reserved),
                                    {}};
  }
  return least;
}

// What stays, and the activations of the parts that wait, of which the last may be smaller. Where
// no part comes again, the first backward pass finds all activations, but no gradient.
Bytes ModelPricer::requested(const Stage& stage, const Memory& memory) {
  const Bytes kept = stage.checkpointed ? memory.kept_checkpointed : memory.kept;
  const std::int64_t rows = std::min<std::int64_t>(stage.waiting * stage.form.rows, stage.rows);
  const Bytes waiting =
      share_of(kept, static_cast<double>(rows) / static_cast<double>(stage.form.rows));
  if (stage.parts > stage.waiting) return memory.resident + waiting;
  return std::max(memory.resident, memory.resident - memory.gradients + waiting);
}

ModelPricer::Alike ModelPricer::alike(const Stage& stage) const {
  return {stage.form, stage.checkpointed, stage.parts > stage.waiting, stage.first == 0,
          stage.first + stage.count == layers_};
}

Stage ModelPricer::first_like(Stage stage) const {
  stage.first =
      first_like_[static_cast<std::size_t>(stage.count - 1)][static_cast<std::size_t>(stage.first)];
  return stage;
}

void ModelPricer::learn(const Stage& stage, const StagePrice& price) {
  known_[first_like(stage)] = price;
  const Bytes least = requested(stage, memory_of(stage));
  const Bytes beyond = std::max(Bytes{}, price.requested - least);
  const auto [place, is_new] = beyond_.try_emplace(alike(stage), beyond);
  if (!is_new) place->second = std::min(place->second, beyond);
}

StageMemory ModelPricer::at_least(const Stage& stage) {
  const auto known = known_.find(first_like(stage));
  if (known != known_.end())
    return {known->second.resident, known->second.reserved, known->second.requested};
  StageMemory least = surely(stage);
  if (const auto beyond = beyond_.find(alike(stage)); beyond != beyond_.end())
    least.reserved += share_of(beyond->second, kSureBeyond);
  return least;
}

StageMemory ModelPricer::exact(const Stage& stage) {
  const Stage like = first_like(stage);
  if (!known_.contains(like)) {
    const StagePrice price = dry_run_(like);
    ++dry_runs_;
    learn(like, price);
    trainings_[static_cast<std::size_t>(stage.form.techniques)].book.add(like, price);
    if (dry_runs_ % kSavedAfter == 0) save();  // a search may be ended
  }
  return at_least(stage);
}

void ModelPricer::save() {
  for (PricedTraining& training : trainings_) training.book.save();
}

// ---- Time ----

std::vector<LayerTimes> ModelPricer::times(const Form& form, int kind) {
  const gpu::CatalogueCard* const on = cards_.kinds.at(static_cast<std::size_t>(kind));
  const OfRows& of = of_rows(form, gpu::find_profile(on->profile));
  const auto plain = forecast::layer_seconds(of.plain, on),
             checkpointed = forecast::layer_seconds(of.checkpointed, on);
  std::vector<LayerTimes> all;
  for (std::size_t layer = 0; layer < plain.size(); ++layer) {
    all.push_back({.forward = plain[layer].forward,
                   .backward = plain[layer].backward,
                   .again = std::max(0.0, checkpointed[layer].backward - plain[layer].backward),
                   .optimizer = plain[layer].optimizer});
    if (of.moved.empty()) continue;
    // Copies run beside the computation, and not faster than the link.
    const double copies = static_cast<double>(of.moved[layer].kept.count) / (on->pcie_gb_s * 1e9);
    all.back().forward = std::max(all.back().forward, copies);
    all.back().backward = std::max(all.back().backward, copies);
  }
  return all;
}

Bytes ModelPricer::on_host(const Stage& stage) {
  const OfRows& of = of_rows(stage.form, cards_.chips.front());
  if (of.moved.empty()) return {};
  Bytes all;
  for (std::int64_t layer = stage.first; layer < stage.first + stage.count; ++layer) {
    const Memory& moved = of.moved[static_cast<std::size_t>(layer)];
    all += stage.checkpointed ? moved.kept_checkpointed : moved.kept;
  }
  const std::int64_t rows = std::min<std::int64_t>(stage.waiting * stage.form.rows, stage.rows);
  return share_of(all, static_cast<double>(rows) / static_cast<double>(stage.form.rows));
}

const gpu::CatalogueCard& ModelPricer::card(int number) const {
  return *cards_.kinds[static_cast<std::size_t>(
      cards_.kind_of_card.at(static_cast<std::size_t>(number)))];
}

// A checkpointed layer keeps what it was given, and nothing else.
double ModelPricer::hand_over(const Form& form, std::int64_t layer, int from, int to) {
  const Memory given = memory_of({.form = form, .first = layer, .count = 1});
  const double rate =
      std::min(gpu::link_bytes_per_second(card(from), 2), gpu::link_bytes_per_second(card(to), 2));
  return static_cast<double>(given.kept_checkpointed.count) / rate;
}

// As much as a ring sends: 2 (n - 1) / n of the gradients.
double ModelPricer::sum_of_gradients(const Stage& stage, const std::vector<int>& cards) {
  const auto count = static_cast<int>(cards.size());
  double rate = gpu::link_bytes_per_second(card(cards.front()), count);
  for (const int number : cards)
    rate = std::min(rate, gpu::link_bytes_per_second(card(number), count));
  return 2.0 * (count - 1) / count * static_cast<double>(memory_of(stage).gradients.count) / rate;
}

}  // namespace headroom::plan

#include "headroom/estimate/price_stages.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <optional>

#include "headroom/dryrun/dry_run.h"
#include "headroom/libtorch/modules.h"
#include "headroom/libtorch/on.h"
#include "headroom/plan/model_pricer.h"
#include "headroom/plan/pipeline.h"
#include "headroom/recipe/data.h"
#include "headroom/recipe/model.h"
#include "headroom/train/model_objective.h"
#include "headroom/train/stage_alone.h"

namespace headroom::estimate {
namespace {

std::set<std::string> names_of(const model::ModelConfig& config, const model::Settings& settings,
                               std::int64_t layer) {
  const auto model = libtorch::on(at::kMeta, [&] {
    return recipe::build_model(config, settings, models::Part{.first = layer, .count = 1});
  });
  std::set<std::string> names;
  for (const auto& one : model->module().named_parameters()) names.insert(one.key());
  return names;
}

// So many rows like this one. Every vocabulary has a token 1, and every head a class 1; floats need
// no values.
at::Tensor rows_like(const at::Tensor& row, std::int64_t rows) {
  std::vector<std::int64_t> sizes = row.sizes().vec();
  sizes.front() = rows;
  return row.is_floating_point() ? at::empty(sizes, row.options()) : at::ones(sizes, row.options());
}

}  // namespace

StagePrices::StagePrices(config::Training training, std::vector<gpu::SimulatedCard> cards,
                         const allocator::Settings& settings)
    : training_(std::move(training)),
      cards_(std::move(cards)),
      settings_(settings),
      pipeline_(plan::pipeline_named(training_.config.text("pipeline"))),
      options_(recipe::step_options_of(training_, 1)) {
  const recipe::Data data = recipe::data_of(training_, /*pinned=*/false);
  outputs_ = data.outputs;
  for (const at::Tensor& one : recipe::batches_of(data.train, training_).next())
    row_.push_back(one.defined() ? one.narrow(0, 0, 1) : one);
  const model::ModelConfig config = training_.model_for(outputs_);
  layer_kinds_ = plan::layer_kinds(config, training_.settings);
  layers_ = static_cast<std::int64_t>(layer_kinds_.size());
  for (std::int64_t layer = 0; layer < layers_; ++layer)
    names_.push_back(names_of(config, training_.settings, layer));
}

// A weight belongs to the first layer that has it; later stages have copies.
StagePrices::Ties StagePrices::ties_of(const plan::Stage& stage) const {
  Ties ties;
  const std::int64_t end = stage.first + stage.count;
  const auto has = [&](std::int64_t from, std::int64_t to, const std::string& name) {
    return std::any_of(names_.begin() + from, names_.begin() + to,
                       [&](const auto& names) { return names.contains(name); });
  };
  for (std::int64_t layer = stage.first; layer < end; ++layer)
    for (const std::string& name : names_[static_cast<std::size_t>(layer)]) {
      if (has(0, stage.first, name))
        ties.copies.insert(name);
      else if (has(end, layers_, name))
        ties.copied.insert(name);
    }
  return ties;
}

// ---- A stage alone ----

StagePrices::Alone StagePrices::alone(const plan::Stage& stage) {
  const bool is_first = stage.first == 0, is_last = stage.first + stage.count == layers_;
  const Ties ties = ties_of(stage);
  const auto part = is_first && is_last
                        ? std::nullopt
                        : std::optional(models::Part{.first = stage.first, .count = stage.count});
  Alone alone{recipe::stage_of(training_, outputs_, part, ties.copies), nullptr};
  train::StandsAt at{.replicas = stage.form.replicas, .pipeline = pipeline_};
  if (part) {
    // The stages after this one decide how many parts wait; the last has none after it.
    at.stage = is_first ? 0 : 1;
    at.stages = is_last ? 2 : std::max(at.stage + 2, at.stage + stage.waiting);
  }
  torch::nn::Module& module = alone.made.model->module();
  for (const auto& one : module.named_parameters()) {
    if (!one.value().requires_grad()) continue;
    if (ties.copied.contains(one.key())) at.copied.push_back(one.value());
    if (ties.copies.contains(one.key())) at.copies.push_back(one.value());
  }
  const train::Rank rank{module, *alone.made.optimizer, train::objective_of(alone.made.model)};
  alone.stage = std::make_unique<train::StageAlone>(rank, at, options_);
  return alone;
}

train::Tensors StagePrices::rows_of(const plan::Stage& stage) const {
  train::Tensors rows;
  for (const at::Tensor& one : row_)
    rows.push_back(one.defined() ? rows_like(one, stage.rows) : one);
  return rows;
}

train::Plan StagePrices::plan_of(const plan::Stage& stage) const {
  train::Plan plan = options_.plan;
  plan.micro_batch = stage.form.rows;
  if (stage.checkpointed) plan.techniques.insert("checkpointing");
  return plan;
}

// ---- What the stage before gives ----

const StagePrices::Given& StagePrices::given(std::int64_t layer, std::int64_t rows) {
  // Layers of one kind give equal tensors, to layers of one kind.
  const auto border = layer_kinds_.begin() + (layer - 1);
  layer = std::search(layer_kinds_.begin(), layer_kinds_.end(), border, border + 2) -
          layer_kinds_.begin() + 1;
  const auto known = given_.find({layer, rows});
  if (known != given_.end()) return known->second;
  const plan::Stage before{.form = {.rows = rows}, .first = layer - 1, .count = 1, .rows = rows};
  const Alone giver = alone(before);
  static_cast<void>(giver.stage->run(cards_.front(), rows_of(before), plan_of(before),
                                     given(before), {.settings = settings_}));
  return given_[{layer, rows}] = giver.stage->given().front();
}

std::optional<std::vector<StagePrices::Given>> StagePrices::given(const plan::Stage& stage) {
  if (stage.first == 0) return {};
  std::vector<Given> all;
  // Nearly equal parts, the first ones have more.
  const std::int64_t parts = count_of_parts(plan_of(stage), stage.rows);
  for (std::int64_t part = 0; part < parts; ++part)
    all.push_back(given(stage.first, stage.rows / parts + (part < stage.rows % parts ? 1 : 0)));
  return all;
}

// ---- Dry runs ----

std::vector<dryrun::Requests> StagePrices::run(const Alone& alone, const plan::Stage& stage) {
  const auto before = given(stage);
  std::vector<dryrun::Requests> all;
  for (const gpu::SimulatedCard& card : cards_)
    all.push_back(
        alone.stage->run(card, rows_of(stage), plan_of(stage), before, {.settings = settings_}));
  return all;
}

const StagePrices::InFour& StagePrices::in_four(plan::Stage stage) {
  stage.waiting = 2;
  stage.parts = train::kFourParts;
  stage.rows = stage.parts * stage.form.rows;
  const auto known = in_four_.find(stage);
  if (known != in_four_.end()) return known->second;
  const Alone alone = this->alone(stage);
  const auto before = given(stage);
  InFour made;
  for (const gpu::SimulatedCard& card : cards_)
    made.on.push_back(alone.stage->run_four(card, rows_of(stage), plan_of(stage), before,
                                            {.settings = settings_}));
  made.resident = recipe::resident_of(*alone.made.model, *alone.made.optimizer);
  return in_four_.emplace(stage, std::move(made)).first->second;
}

plan::StagePrice StagePrices::of(const plan::Stage& stage) {
  plan::StagePrice most;
  std::vector<dryrun::Requests> all;
  if (stage.parts > train::kFourParts && stage.rows == stage.parts * stage.form.rows) {
    const InFour& known = in_four(stage);
    most.resident = known.resident;
    for (const train::FourParts& four : known.on)
      if (auto requests = train::in_parts(four, pipeline_, stage.waiting, stage.parts))
        all.push_back(std::move(*requests));
  }
  if (all.size() != cards_.size()) {
    const Alone alone = this->alone(stage);
    all = run(alone, stage);
    most.resident = recipe::resident_of(*alone.made.model, *alone.made.optimizer);
  }
  for (const dryrun::Requests& requests : all) {
    const dryrun::CardBounds price = train::price_of(requests, settings_);
    most.requested = std::max(most.requested, price.requested);
    most.reserved = std::max(most.reserved, price.at_most);
  }
  return most;
}

}  // namespace headroom::estimate

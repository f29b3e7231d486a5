#include "headroom/train/stage_alone.h"

#include <utility>

#include "headroom/allocator/caching_allocator.h"
#include "headroom/parallel/layout.h"
#include "headroom/train/detail/pass_requests.h"
#include "headroom/train/detail/stage_requests.h"
#include "headroom/train/detail/transaction.h"

namespace headroom::train {
namespace {

detail::Place place_of(const StandsAt& at) {
  const auto ranks = parallel::in_process({.replicas = at.replicas, .stages = at.stages});
  detail::Place place{.ranks = parallel::alone(ranks.at(static_cast<std::size_t>(at.stage))),
                      .pipeline = at.pipeline};
  for (const at::Tensor& weight : at.copied) place.tied.push_back({weight, at.stages - 1, false});
  for (const at::Tensor& copy : at.copies) place.tied.push_back({copy, 0, true});
  return place;
}

}  // namespace

StageAlone::StageAlone(Rank rank, const StandsAt& place, const StepOptions& options)
    : transaction_(std::make_unique<detail::Transaction>(
          rank.module, rank.optimizer, std::move(rank.objective), options, place_of(place))),
      place_(place) {}
StageAlone::~StageAlone() = default;

dryrun::Requests StageAlone::run(const gpu::SimulatedCard& card, const Tensors& batch,
                                 const Plan& plan, const std::optional<std::vector<Tensors>>& given,
                                 const dryrun::CardOptions& options) {
  return detail::requests_alone(*transaction_, dryrun::without_limit(card), batch, plan, given,
                                options);
}

FourParts StageAlone::run_four(const gpu::SimulatedCard& card, const Tensors& batch,
                               const Plan& plan, const std::optional<std::vector<Tensors>>& given,
                               const dryrun::CardOptions& options) {
  return {detail::requests_alone(*transaction_, dryrun::without_limit(card), batch, plan, given,
                                 options, /*with_marks=*/true),
          plan::passes(place_.pipeline, place_.stage, place_.stages, kFourParts)};
}

const std::vector<Tensors>& StageAlone::given() const {
  return transaction_->given();
}

dryrun::CardBounds price_of(const dryrun::Requests& step, const allocator::Settings& settings) {
  return dryrun::card_bounds(
      detail::with_another_step(step),
      allocator::CachingAllocator({.capacity = allocator::kUnlimited, .settings = settings}));
}

std::optional<dryrun::Requests> in_parts(const FourParts& four, plan::Pipeline pipeline,
                                         int waiting, int parts) {
  return detail::in_more_parts(four.requests, four.passes,
                               plan::passes(pipeline, 0, waiting, parts));
}

}  // namespace headroom::train

// One rank of a team (team.h) without the others, to find the memory that it needs on its card: it
// takes the same as among them, to the byte. Its module may be on LibTorch's meta device.
//
//   train::StageAlone stage({*module, *optimizer, objective}, {.stages = 4, .stage = 1}, options);
//   const auto requests = stage.run(card, batch, plan, given_by_the_stage_before, {});
//   price_of(requests, settings).at_most;   // what a step reserves
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "headroom/allocator/settings.h"
#include "headroom/dryrun/dry_run.h"
#include "headroom/dryrun/step_run.h"
#include "headroom/gpu/simulated.h"
#include "headroom/plan/pipeline.h"
#include "headroom/train/plan.h"
#include "headroom/train/step_options.h"
#include "headroom/train/team.h"

namespace headroom::train {

namespace detail {
class Transaction;
}

// Where the rank stands.
struct StandsAt {
  int replicas = 1, stages = 1, stage = 0;
  plan::Pipeline pipeline = plan::Pipeline::one_by_one;
  // Its weights that a later stage has a copy of, and its copies of weights of an earlier one.
  Tensors copied = {}, copies = {};
};

// A step of four equal parts, for the price of a step of more of them (detail/pass_requests.h).
struct FourParts {
  dryrun::Requests requests;
  std::vector<plan::Pass> passes;
};
inline constexpr int kFourParts = 4;

class StageAlone {
 public:
  // The rank's module and optimizer must outlive it.
  StageAlone(Rank rank, const StandsAt& place, const StepOptions& options);
  ~StageAlone();
  StageAlone(const StageAlone&) = delete;
  StageAlone& operator=(const StageAlone&) = delete;

  // The requests of a step, in parts as the plan says. `given`: the tensors of each part that the
  // stage before gives; std::nullopt for the first stage.
  [[nodiscard]] dryrun::Requests run(const gpu::SimulatedCard& card, const Tensors& batch,
                                     const Plan& plan,
                                     const std::optional<std::vector<Tensors>>& given,
                                     const dryrun::CardOptions& options);
  // The same with what a price of more parts needs. The plan must cut the batch into four.
  [[nodiscard]] FourParts run_four(const gpu::SimulatedCard& card, const Tensors& batch,
                                   const Plan& plan,
                                   const std::optional<std::vector<Tensors>>& given,
                                   const dryrun::CardOptions& options);
  // What the last one has given to the next stage, for each part.
  [[nodiscard]] const std::vector<Tensors>& given() const;

 private:
  std::unique_ptr<detail::Transaction> transaction_;
  StandsAt place_;
};

// The memory of such a step after another one, whose cache it finds.
[[nodiscard]] dryrun::CardBounds price_of(const dryrun::Requests& step,
                                          const allocator::Settings& settings);
// The requests of a step with so many equal parts, of which some wait for their backward pass at
// the same time. std::nullopt if its passes are not alike: it has to run.
[[nodiscard]] std::optional<dryrun::Requests> in_parts(const FourParts& four,
                                                       plan::Pipeline pipeline, int waiting,
                                                       int parts);

}  // namespace headroom::train

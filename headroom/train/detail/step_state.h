// The state of a step between its runs: the plan, its prices, what has failed, what has run.
#pragma once

#include <atomic>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "headroom/memory/memory_statistics.h"
#include "headroom/memory/spill.h"
#include "headroom/oom/judgement.h"
#include "headroom/train/detail/adaptation.h"
#include "headroom/train/detail/transactions.h"
#include "headroom/train/step.h"

namespace headroom::train {

class Step::State {
 public:
  State(Team team, const StepOptions& given);

  void prepare(const Tensors& batch);
  Committed run(const Tensors& batch);
  [[nodiscard]] Plan first_plan(std::int64_t rows, const std::optional<PerStage>& cards) const;
  [[nodiscard]] std::optional<PricedPlan> least_plan(std::int64_t rows,
                                                     std::optional<std::int64_t> least) const;
  [[nodiscard]] std::optional<Plan> plan_without_spill(std::int64_t rows) const;
  std::optional<Event> shrink(std::int64_t rows);
  void set_plan(const Plan& given);
  [[nodiscard]] std::optional<PerStage> usable() const;
  [[nodiscard]] std::optional<memory::SpillUse> spilled() const;
  std::optional<Event> news_of_spill();
  [[nodiscard]] bool keeps_plan() const { return spill_ && !options_.adapts; }

  detail::Transactions ranks;
  Plan plan;
  std::optional<Prices> prices;
  std::string why_unpriced = "no step has run yet";
  std::optional<Failure> last_failure;
  std::atomic<bool> runs = false;

 private:
  [[nodiscard]] Work work_of(const Tensors& batch) const;
  [[nodiscard]] std::int64_t step() const { return ranks.first().commits() + 1; }
  [[nodiscard]] bool is_on_cpu() const { return ranks.first().device().is_cpu(); }
  [[nodiscard]] std::size_t stage_of(std::size_t rank) const;
  [[nodiscard]] std::int64_t rows_of_rank(std::int64_t rows) const;
  [[nodiscard]] std::optional<memory::GpuMemoryStats> memory_now(std::size_t rank) const;
  [[nodiscard]] std::optional<Bytes> card_of(
      const std::optional<memory::GpuMemoryStats>& now) const;
  [[nodiscard]] std::optional<std::int64_t> retries() const;
  [[nodiscard]] bool reserve(const Work& work) const;
  void price(const Tensors& batch);
  [[nodiscard]] Failure failure_of(const oom::Judgement& judgement, const Work& work) const;
  [[nodiscard]] Event event_of(const Failure& failure) const;
  [[nodiscard]] std::optional<Ladder::Move> change_before(const Work& work,
                                                          const std::optional<PerStage>& cards);
  // Its last failures: for memory, and for other reasons.
  struct Failed {
    std::exception_ptr of_memory;
    std::string otherwise;     // "" if of nothing else
    std::int64_t too_few = 0;  // rows of the smallest part of the plan that failed otherwise
  };
  void try_until_committed(const Tensors& batch, const Work& work, Committed& done);
  [[nodiscard]] Ladder::Move after_out_of_memory(const oom::Judgement& judgement, const Work& work,
                                                 const Failed& failed, std::vector<Event>& events);
  [[nodiscard]] Ladder::Move after_other_failure(const std::exception_ptr& failure,
                                                 const Work& work, Failed& failed);
  [[nodiscard]] bool has_run(const Work& work) const;
  [[nodiscard]] Plan plan_after_wait(const Work& work) const;
  void begin_to_spill();
  void take(const Ladder::Move& move, std::vector<Event>& events, const std::string& why = {});
  void tell(std::vector<Event>& events, Event event) const;

  StepOptions options_;
  Ladder ladder_;
  std::optional<detail::Adaptation> adaptation_;
  std::optional<memory::Spill> spill_;  // once the plans are priced
  memory::SpillUse told_;               // of it, so far
  double priced_elements_ = 0;          // of a row
  Plan wish_;                           // the last plan that the caller asked for
  // By techniques: rows of a part that has committed.
  std::map<std::set<std::string>, std::int64_t> fewest_run_;
  bool is_prepared_ = false, is_first_ = true, told_unpriced_ = false;
};

}  // namespace headroom::train

// The transactions of a step's ranks, which commit or undo together.
//
// Threads: one at a time; ranks have their own.
#pragma once

#include <exception>
#include <memory>
#include <vector>

#include "headroom/parallel/rank_threads.h"
#include "headroom/train/detail/transaction.h"
#include "headroom/train/team.h"

namespace headroom::train::detail {

// Throws UsageError unless each replica has all stages.
[[nodiscard]] parallel::Layout layout_of(const Team& team);

// The one to tell of those of several ranks (null: none): of the lowest rank that ran out of
// memory, or else of the lowest that failed.
[[nodiscard]] std::size_t heaviest(const std::vector<std::exception_ptr>& failures);

class Transactions {
 public:
  // Throws UsageError like Transaction, and unless the ranks are on different devices and the same
  // stages have the same parameters.
  Transactions(Team team, const StepOptions& options);

  // Null if all have committed. Otherwise none has, and it is the failure of failed().
  [[nodiscard]] std::exception_ptr try_once(const Tensors& batch, const Plan& plan);
  [[nodiscard]] std::size_t failed() const { return failed_; }

  [[nodiscard]] std::size_t size() const { return all_.size(); }
  [[nodiscard]] const parallel::Layout& layout() const { return layout_; }
  [[nodiscard]] plan::Pipeline pipeline() const { return pipeline_; }
  [[nodiscard]] Transaction& operator[](std::size_t rank) const { return *all_.at(rank); }
  // The one whose figures are those of the step, such as its loss.
  [[nodiscard]] Transaction& first() const { return *all_.front(); }

  void check_place() const;
  [[nodiscard]] bool can(const std::string& technique) const;
  // The techniques that have changed a rank for good, or begun to.
  [[nodiscard]] Plan lasting() const;
  void set_commits(std::int64_t commits);
  // Of the optimizers.
  [[nodiscard]] Tensors states() const;

 private:
  parallel::Layout layout_;
  plan::Pipeline pipeline_;
  std::vector<std::unique_ptr<Transaction>> all_;
  std::unique_ptr<parallel::RankThreads> threads_;
  std::size_t failed_ = 0;
};

}  // namespace headroom::train::detail

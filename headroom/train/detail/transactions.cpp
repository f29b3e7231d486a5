#include "headroom/train/detail/transactions.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/libtorch/failure.h"
#include "headroom/libtorch/random_state.h"

namespace headroom::train::detail {
namespace {

bool has(const Tensors& all, const at::Tensor& wanted) {
  return std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.is_same(wanted); });
}

// By rank.
std::vector<std::vector<Tied>> tied_of(const Team& team, const parallel::Layout& layout) {
  std::vector<std::vector<Tied>> all(team.ranks.size());
  const auto rank_of = [&](const auto& is_there, const char* what) {
    for (std::size_t rank = 0; rank < team.ranks.size(); ++rank)
      if (is_there(team.ranks[rank])) return static_cast<int>(rank);
    throw UsageError(expectation("Step", what, "a tie of other tensors"));
  };
  for (const Tie& tie : team.ties) {
    if (!tie.weight.requires_grad()) continue;
    const int owner =
        rank_of([&](const Rank& rank) { return has(rank.optimizer.parameters(), tie.weight); },
                "tied weights that an optimizer trains");
    const int user = rank_of(
        [&](const Rank& rank) {
          return has(rank.module.parameters(), tie.copy) &&
                 !has(rank.optimizer.parameters(), tie.copy);
        },
        "copies of tied weights that a module has and its optimizer does not train");
    if (layout.replica_of(owner) != layout.replica_of(user) || owner == user)
      throw UsageError(expectation("Step", "ties between two stages of a replica", "another one"));
    all[static_cast<std::size_t>(owner)].push_back({tie.weight, layout.stage_of(user), false});
    all[static_cast<std::size_t>(user)].push_back({tie.copy, layout.stage_of(owner), true});
  }
  return all;
}

// Each stage has its weights on all replicas.
void check_replicas(const std::vector<std::unique_ptr<Transaction>>& all,
                    const parallel::Layout& layout) {
  const auto equal = [](const at::Tensor& a, const at::Tensor& b) {
    return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type();
  };
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    const auto parameters_of = [&](int of) -> const Tensors& {
      return all[static_cast<std::size_t>(of)]->optimizer().parameters();
    };
    const Tensors& first = parameters_of(layout.stage_of(rank));
    const Tensors& own = parameters_of(rank);
    if (!std::equal(first.begin(), first.end(), own.begin(), own.end(), equal))
      throw UsageError(expectation(
          "Step", "replicas whose optimizers have the same parameters",
          "parameters of other shapes on " + all[static_cast<std::size_t>(rank)]->device().str()));
  }
}

void check_devices(const std::vector<c10::Device>& devices) {
  for (auto one = devices.begin(); one != devices.end(); ++one)
    if (!one->is_cpu() && std::find(devices.begin(), one, *one) != one)
      throw UsageError(
          expectation("Step", "a device for each rank", one->str() + " for two of them"));
}

void check_trained(const std::vector<std::unique_ptr<Transaction>>& all) {
  const auto trains = [](const auto& one) {
    const Tensors& ours = one->optimizer().parameters();
    return std::any_of(ours.begin(), ours.end(), [](const auto& p) { return p.requires_grad(); });
  };
  if (std::none_of(all.begin(), all.end(), trains))
    throw UsageError(expectation("Step", "a parameter to train", "optimizers of frozen ones",
                                 "requires_grad, or optimizers of what is trained"));
}

bool is_elsewhere(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const FailedElsewhere&) {
    return true;
  } catch (const parallel::NothingGiven&) {
    return true;
  } catch (...) {
    return false;
  }
}

// 0: nothing to tell; the most important is the highest.
int weight_of(const std::exception_ptr& failure) {
  if (!failure || is_elsewhere(failure)) return 0;
  return libtorch::is_out_of_memory(failure) ? 2 : 1;
}

}  // namespace

parallel::Layout layout_of(const Team& team) {
  const auto ranks = static_cast<int>(team.ranks.size());
  if (ranks == 0) throw UsageError(expectation("Step", "a team with ranks", "none"));
  if (team.stages < 1 || ranks % team.stages != 0)
    throw UsageError(expectation(
        "Step", "a team in which each replica has all stages",
        std::to_string(ranks) + " ranks for " + std::to_string(team.stages) + " stages"));
  return {.replicas = ranks / team.stages, .stages = team.stages};
}

std::size_t heaviest(const std::vector<std::exception_ptr>& failures) {
  const auto lighter = [](const auto& one, const auto& other) {
    return weight_of(one) < weight_of(other);
  };
  const auto found = std::max_element(failures.begin(), failures.end(), lighter);
  return static_cast<std::size_t>(found - failures.begin());
}

Transactions::Transactions(Team team, const StepOptions& options)
    : layout_(layout_of(team)), pipeline_(team.pipeline) {
  const auto groups = parallel::in_process(layout_);
  const auto tied = tied_of(team, layout_);
  std::vector<c10::Device> devices;
  for (std::size_t i = 0; i < team.ranks.size(); ++i) {
    Rank& rank = team.ranks[i];
    all_.push_back(std::make_unique<Transaction>(rank.module, rank.optimizer,
                                                 std::move(rank.objective), options,
                                                 Place{groups[i], team.pipeline, tied[i]}));
    devices.push_back(all_.back()->device());
  }
  check_devices(devices);
  check_replicas(all_, layout_);
  check_trained(all_);
  threads_ = std::make_unique<parallel::RankThreads>(std::move(devices));
}

std::exception_ptr Transactions::try_once(const Tensors& batch, const Plan& plan) {
  if (all_.size() == 1) return first().try_once(batch, plan);
  const libtorch::RandomState random({});
  std::vector<std::exception_ptr> failures(all_.size());
  threads_->run([&](int rank) {
    const auto i = static_cast<std::size_t>(rank);
    failures[i] = all_[i]->try_once(batch, plan);
  });
  failed_ = heaviest(failures);
  if (failures[failed_]) random.restore();
  return failures[failed_];
}

void Transactions::check_place() const {
  for (const auto& one : all_) one->check_place();
}

bool Transactions::can(const std::string& technique) const {
  return std::all_of(all_.begin(), all_.end(),
                     [&](const auto& one) { return one->can(technique); });
}

Plan Transactions::lasting() const {
  Plan lasting;
  for (const auto& one : all_) lasting = keeping_what_lasts(lasting, one->lasting());
  return lasting;
}

void Transactions::set_commits(std::int64_t commits) {
  for (const auto& one : all_) one->set_commits(commits);
}

Tensors Transactions::states() const {
  Tensors all;
  for (const auto& one : all_) {
    const Tensors its = one->states();
    all.insert(all.end(), its.begin(), its.end());
  }
  return all;
}

}  // namespace headroom::train::detail

#include "headroom/train/detail/transactions.h"

#include <algorithm>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/libtorch/failure.h"
#include "headroom/libtorch/random_state.h"

namespace headroom::train::detail {
namespace {

void check(const std::vector<std::unique_ptr<Transaction>>& all) {
  const auto& first = all.front()->optimizer().parameters();
  for (auto one = all.begin() + 1; one != all.end(); ++one) {
    const c10::Device device = (*one)->device();
    const auto is_same = [&](const auto& other) { return other->device() == device; };
    if (!device.is_cpu() && std::any_of(all.begin(), one, is_same))
      throw UsageError(
          expectation("Step", "a device for each rank", device.str() + " for two of them"));
    const auto& parameters = (*one)->optimizer().parameters();
    const auto equal = [](const at::Tensor& a, const at::Tensor& b) {
      return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type();
    };
    if (!std::equal(first.begin(), first.end(), parameters.begin(), parameters.end(), equal))
      throw UsageError(expectation("Step", "replicas whose optimizers have the same parameters",
                                   "parameters of other shapes on " + device.str()));
  }
}

bool is_elsewhere(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const FailedElsewhere&) {
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

Transactions::Transactions(Team team, const StepOptions& options) {
  if (team.ranks.empty()) throw UsageError(expectation("Step", "a team with ranks", "none"));
  const auto groups = parallel::in_process({.replicas = static_cast<int>(team.ranks.size())});
  std::vector<c10::Device> devices;
  for (std::size_t i = 0; i < team.ranks.size(); ++i) {
    Rank& rank = team.ranks[i];
    all_.push_back(std::make_unique<Transaction>(rank.module, rank.optimizer,
                                                 std::move(rank.objective), options, groups[i]));
    devices.push_back(all_.back()->device());
  }
  check(all_);
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
  const auto lighter = [](const auto& one, const auto& other) {
    return weight_of(one) < weight_of(other);
  };
  const auto heaviest = std::max_element(failures.begin(), failures.end(), lighter);
  if (*heaviest) random.restore();
  failed_ = static_cast<std::size_t>(heaviest - failures.begin());
  return *heaviest;
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

}  // namespace headroom::train::detail

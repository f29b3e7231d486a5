#include "headroom/train/detail/checkpoint_reading.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/sha256.h"
#include "headroom/libtorch/random_state.h"
#include "headroom/train/detail/checkpoint_files.h"
#include "headroom/weights/tensor_files.h"

namespace headroom::train::detail {
namespace {

namespace fs = std::filesystem;
using weights::NamedTensors;
using weights::TensorFile;

std::size_t ranks_of(const Step& step) {
  return static_cast<std::size_t>(step.layout().ranks());
}

// The weights of a checkpoint: those that it holds, and those that were not trained.
class Weights {
 public:
  Weights(const fs::path& folder, const Json& state, FrozenPart& frozen)
      : frozen_(frozen), hash_(state.value("frozen", "")), own_(folder / kModel) {
    if (!hash_.empty()) shared_.emplace(path_ = frozen.find(folder, hash_));
  }

  void check_fits(Step& step) const {
    for (std::size_t rank = 0; rank < ranks_of(step); ++rank) check_fits(step.module(rank));
  }

  // On all ranks: those of a replica have the same values as the first one's.
  void read_into(Step& step) const {
    const at::NoGradGuard no_grad;
    const bool has_shared = frozen_.is_loaded(model_of(step), hash_);
    for (std::size_t rank = 0; rank < ranks_of(step); ++rank)
      for (const auto& [name, tensor] : tensors_of(step.module(rank)))
        if (const TensorFile& file = file_of(name); &file == &own_ || !has_shared)
          file.read_as_stored(name, tensor);
    if (shared_ && !has_shared) frozen_.loaded(model_of(step), path_, hash_);
  }

 private:
  void check_fits(const torch::nn::Module& module) const {
    for (const auto& [name, tensor] : tensors_of(module)) {
      const std::vector<std::int64_t> shape = file_of(name).shape(name);
      if (at::IntArrayRef(shape) != tensor.sizes())
        throw InputError(name, "expected the shape " + c10::str(tensor.sizes()) + ", received " +
                                   c10::str(at::IntArrayRef(shape)));
    }
  }

  [[nodiscard]] const TensorFile& file_of(const std::string& name) const {
    return shared_ && !own_.has(name) ? *shared_ : own_;
  }

  FrozenPart& frozen_;
  std::string hash_;
  fs::path path_;
  TensorFile own_;
  std::optional<TensorFile> shared_;
};

void check_files(const fs::path& folder, const Json& state) {
  Json without = state;
  without.at("sha256").erase(kState);
  if (hash_of(without) != state.at("sha256").at(kState).get<std::string>())
    throw InputError((folder / kState).string(), kOtherContent);
  for (const char* name : {kModel, kOptimizer, kRandom})
    if (sha256_of_file(folder / name) != state.at("sha256").at(name).get<std::string>())
      throw InputError((folder / name).string(), kOtherContent);
}

// Where a file has the states of the optimizers' parameters: under their names, in older ones, of
// models that are not split, under their numbers.
class StoredStates {
 public:
  // The optimizers have states.
  StoredStates(const TensorFile& file, Step& step) : file_(file), step_(step) {
    for (std::size_t rank = 0; rank < ranks_of(step); ++rank)
      names_.push_back(names_in(step.module(rank), step.optimizer(rank)));
    for (std::size_t i = 0; i < names_[0].size(); ++i)
      for (const auto& [state, tensor] : step.optimizer().state(i))
        is_older_ = is_older_ || file.has(std::to_string(i) + "." + state);
  }

  // False if it has others, those of another kind of optimizer.
  [[nodiscard]] bool suit() const {
    const std::vector<std::string> all = file_.names();
    std::set<std::string> left(all.begin(), all.end());
    for (std::size_t rank = 0; rank < names_.size(); ++rank)
      for (std::size_t i = 0; i < names_[rank].size(); ++i)
        for (const auto& [state, tensor] : step_.optimizer(rank).state(i)) {
          if (!file_.has(name_of(rank, i, state))) return false;
          left.erase(name_of(rank, i, state));
        }
    return left.empty();
  }

  // Those of a rank: all of them, or none if one does not fit.
  void read_into(std::size_t rank) const {
    optim::Optimizer& optimizer = step_.optimizer(rank);
    std::vector<optim::State> before;
    try {
      for (std::size_t i = 0; i < names_[rank].size(); ++i) {
        optim::State stored = before.emplace_back(optimizer.state(i));
        for (auto& [state, tensor] : stored) tensor = file_.read(name_of(rank, i, state));
        optimizer.set_state(i, std::move(stored));
      }
    } catch (...) {
      for (std::size_t i = 0; i < before.size(); ++i) optimizer.set_state(i, before[i]);
      throw;
    }
  }

 private:
  [[nodiscard]] std::string name_of(std::size_t rank, std::size_t parameter,
                                    const std::string& state) const {
    return (is_older_ ? std::to_string(parameter) : names_[rank][parameter]) + "." + state;
  }

  const TensorFile& file_;
  Step& step_;
  std::vector<std::vector<std::string>> names_;  // of parameters, by rank
  bool is_older_ = false;
};

}  // namespace

Json sound_state(const fs::path& folder, FrozenPart& frozen) {
  Json state = parse_json(read_input(folder / kState), (folder / kState).string());
  check_files(folder, state);
  if (const std::string hash = state.value("frozen", ""); !hash.empty())
    static_cast<void>(frozen.find(folder, hash));
  return state;
}

FoundCheckpoint read_checkpoint(const fs::path& folder, FrozenPart& frozen, Step& step) {
  const Json state = sound_state(folder, frozen);
  const Weights weights(folder, state, frozen);
  const TensorFile optimizer(folder / kOptimizer), random(folder / kRandom);
  weights.check_fits(step);
  FoundCheckpoint found{.folder = folder,
                        .step = state.at("step").get<std::int64_t>(),
                        .plan = plan_from(state.at("plan"), (folder / kState).string()),
                        .more = state.at("more").get<std::string>()};
  for (std::size_t rank = 0; rank < ranks_of(step); ++rank) step.optimizer(rank).reserve();
  const StoredStates states(optimizer, step);
  found.same_optimizer = states.suit();
  for (std::size_t rank = 0; found.same_optimizer && rank < ranks_of(step); ++rank)
    states.read_into(rank);
  weights.read_into(step);
  for (std::size_t rank = 0; rank < ranks_of(step) && state.contains("scaler"); ++rank)
    if (optim::LossScaler* const scaler = step.scaler(rank); scaler != nullptr)
      scaler->restore(state["scaler"].at("factor").get<double>(),
                      state["scaler"].at("good_steps").get<std::int64_t>());
  step.set_steps(found.step);
  NamedTensors generators;
  for (const std::string& name : random.names()) generators.emplace_back(name, random.read(name));
  found.same_random_numbers = libtorch::RandomState::restore(generators);
  return found;
}

void read_weights(const fs::path& folder, FrozenPart& frozen, Step& step) {
  const Weights weights(folder, sound_state(folder, frozen), frozen);
  weights.check_fits(step);
  weights.read_into(step);
}

std::string why_refused(const fs::path& folder) {
  try {
    throw;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const Error& error) {
    return folder.string() + ": " + error.sentence();
  } catch (const std::exception& error) {  // of JSON, numbers, files
    return folder.string() + ": " + error.what();
  }
}

}  // namespace headroom::train::detail

#include "headroom/train/detail/checkpoint_reading.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
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

// The weights of a checkpoint: those that it holds, and those that were not trained.
class Weights {
 public:
  Weights(const fs::path& folder, const Json& state, FrozenPart& frozen)
      : frozen_(frozen), hash_(state.value("frozen", "")), own_(folder / kModel) {
    if (!hash_.empty()) shared_.emplace(path_ = frozen.find(folder, hash_));
  }

  void check_fits(const torch::nn::Module& module) const {
    for (const auto& [name, tensor] : tensors_of(module)) {
      const std::vector<std::int64_t> shape = file_of(name).shape(name);
      if (at::IntArrayRef(shape) != tensor.sizes())
        throw InputError(name, "expected the shape " + c10::str(tensor.sizes()) + ", received " +
                                   c10::str(at::IntArrayRef(shape)));
    }
  }

  void read_into(const torch::nn::Module& module) const {
    const at::NoGradGuard no_grad;
    const bool has_shared = frozen_.is_loaded(module, hash_);
    for (const auto& [name, tensor] : tensors_of(module))
      if (const TensorFile& file = file_of(name); &file == &own_ || !has_shared)
        file.read_as_stored(name, tensor);
    if (shared_ && !has_shared) frozen_.loaded(module, path_, hash_);
  }

 private:
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

std::vector<optim::State> states_in(const TensorFile& file, const optim::Optimizer& optimizer) {
  std::vector<optim::State> states(optimizer.parameters().size());
  for (const std::string& name : file.names()) {
    const std::size_t dot = name.find('.');
    const std::size_t i = std::stoul(name.substr(0, dot));
    if (i >= states.size())
      throw InputError(name, "expected states of " + std::to_string(states.size()) + " parameters");
    states[i][name.substr(dot + 1)] = file.read(name);
  }
  return states;
}

// Whether the states have the names of this optimizer's states, as those of its kind do.
bool suit(const std::vector<optim::State>& states, const optim::Optimizer& optimizer) {
  const auto names = [](const optim::State& state) {
    std::vector<std::string> all;
    for (const auto& [name, tensor] : state) all.push_back(name);
    return all;
  };
  for (std::size_t i = 0; i < states.size(); ++i)
    if (names(states[i]) != names(optimizer.state(i))) return false;
  return true;
}

// All of them, or none if one does not fit.
void set_states(optim::Optimizer& optimizer, const std::vector<optim::State>& states) {
  std::vector<optim::State> before;
  try {
    for (std::size_t i = 0; i < states.size(); ++i) {
      before.push_back(optimizer.state(i));
      optimizer.set_state(i, states[i]);
    }
  } catch (...) {
    for (std::size_t i = 0; i < before.size(); ++i) optimizer.set_state(i, before[i]);
    throw;
  }
}

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
  weights.check_fits(step.module());
  const std::vector<optim::State> states = states_in(optimizer, step.optimizer());
  FoundCheckpoint found{.folder = folder,
                        .step = state.at("step").get<std::int64_t>(),
                        .plan = plan_from(state.at("plan"), (folder / kState).string()),
                        .more = state.at("more").get<std::string>()};
  step.optimizer().reserve();
  found.same_optimizer = suit(states, step.optimizer());
  if (found.same_optimizer) set_states(step.optimizer(), states);
  weights.read_into(step.module());
  if (optim::LossScaler* scaler = step.scaler(); scaler != nullptr && state.contains("scaler"))
    scaler->restore(state["scaler"].at("factor").get<double>(),
                    state["scaler"].at("good_steps").get<std::int64_t>());
  step.set_steps(found.step);
  NamedTensors generators;
  for (const std::string& name : random.names()) generators.emplace_back(name, random.read(name));
  found.same_random_numbers = libtorch::RandomState::restore(generators);
  return found;
}

void read_weights(const fs::path& folder, FrozenPart& frozen, torch::nn::Module& module) {
  const Weights weights(folder, sound_state(folder, frozen), frozen);
  weights.check_fits(module);
  weights.read_into(module);
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

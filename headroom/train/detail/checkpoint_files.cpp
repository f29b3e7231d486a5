#include "headroom/train/detail/checkpoint_files.h"

#include <fcntl.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "headroom/base/descriptor.h"
#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/sha256.h"
#include "headroom/libtorch/stored_weight.h"

namespace headroom::train::detail {

namespace fs = std::filesystem;

weights::NamedTensors tensors_of(const torch::nn::Module& module) {
  weights::NamedTensors tensors;
  for (const auto& parameter : module.named_parameters())
    tensors.emplace_back(parameter.key(), parameter.value());
  for (const auto& buffer : module.named_buffers())
    if (buffer.value().defined()) tensors.emplace_back(buffer.key(), buffer.value());
  return tensors;
}

Modules model_of(Step& step) {
  Modules model;
  for (int stage = 0; stage < step.layout().stages; ++stage)
    model.push_back(&step.module(static_cast<std::size_t>(stage)));
  return model;
}

weights::NamedTensors parameters_of(const Modules& model,
                                    const std::function<bool(const at::Tensor&)>& wanted) {
  weights::NamedTensors all;
  std::set<std::string> names;
  for (const torch::nn::Module* const stage : model)
    for (const auto& one : stage->named_parameters())
      if (wanted(one.value()) && names.insert(one.key()).second)
        all.emplace_back(one.key(), one.value());
  return all;
}

weights::NamedTensors buffers_of(const Modules& model) {
  weights::NamedTensors all;
  std::set<std::string> names;
  for (const torch::nn::Module* const stage : model)
    for (const auto& one : stage->named_buffers())
      if (one.value().defined() && names.insert(one.key()).second)
        all.emplace_back(one.key(), one.value());
  return all;
}

std::vector<std::string> names_in(const torch::nn::Module& module,
                                  const optim::Optimizer& optimizer) {
  std::map<const c10::TensorImpl*, std::string> known;
  for (const auto& one : module.named_parameters())
    known.emplace(one.value().unsafeGetTensorImpl(), one.key());
  std::vector<std::string> names;
  for (const at::Tensor& one : optimizer.parameters()) {
    const auto found = known.find(one.unsafeGetTensorImpl());
    names.push_back(found != known.end() ? found->second : "#" + std::to_string(names.size()));
  }
  return names;
}

Bytes bytes_of(const weights::NamedTensors& tensors) {
  Bytes all;
  for (const auto& [name, weight] : tensors)
    for (const at::Tensor& tensor : libtorch::memory_of(weight))
      all += Bytes{static_cast<std::int64_t>(tensor.nbytes())};
  return all;
}

std::string hash_of(const Json& state) {
  Sha256 hash;
  hash.add(state.dump());
  return hash.hex();
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw WriteError(write_failure(folder, error.value()));
}

void sync(const fs::path& path) {
  const Descriptor open(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (open.get() < 0 || ::fsync(open.get()) != 0) throw WriteError(write_failure(path, errno));
}

}  // namespace headroom::train::detail

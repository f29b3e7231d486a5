#include "headroom/train/detail/checkpoint_files.h"

#include <fcntl.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
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

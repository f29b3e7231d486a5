#include "headroom/train/detail/frozen_part.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "headroom/base/run_folder.h"
#include "headroom/base/sha256.h"
#include "headroom/libtorch/stored_weight.h"
#include "headroom/train/detail/checkpoint_files.h"

namespace headroom::train::detail {
namespace {

namespace fs = std::filesystem;
weights::NamedTensors frozen_in(const Modules& model) {
  return parameters_of(model, [](const at::Tensor& one) { return !one.requires_grad(); });
}

std::set<std::string> names_of(const weights::NamedTensors& tensors) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors) names.insert(name);
  return names;
}

// The hashes that the checkpoints in a folder name.
void add_named_in(const fs::path& folder, std::set<std::string>& hashes) {
  for (const CheckpointFolder& one : checkpoints_in(folder)) {
    const Json state =
        Json::parse(read_file(one.path / kState).value_or(""), nullptr, /*allow_exceptions=*/false);
    if (state.is_object() && state.contains("frozen") && state["frozen"].is_string())
      hashes.insert(state["frozen"].get<std::string>());
  }
}

}  // namespace

std::vector<FrozenPart::Version> FrozenPart::versions_of(const Modules& model) {
  std::vector<Version> versions;
  for (const auto& [name, weight] : frozen_in(model))
    for (const at::Tensor& tensor : libtorch::memory_of(weight)) {
      const auto memory = tensor.storage().getWeakStorageImpl();
      versions.push_back({name, memory, tensor.is_inference() ? 0 : tensor._version()});
    }
  return versions;
}

fs::path FrozenPart::path_of(const std::string& hash) const {
  return folder_ / frozen_part_name(hash);
}

std::string FrozenPart::save(const Modules& model) {
  const weights::NamedTensors tensors = frozen_in(model);
  if (tensors.empty()) return {};
  if (!is_loaded(model, hash_) || !fs::exists(path_of(hash_))) {
    hash_ = write(tensors);
    saved_ = versions_of(model);
  }
  return hash_;
}

std::string FrozenPart::write(const weights::NamedTensors& tensors) {
  const fs::path half = folder_ / kHalfFrozenPart, file = half / "frozen.safetensors";
  std::error_code error;
  fs::remove_all(half, error);
  make_folder(half);
  try {
    weights::save_tensors(file, tensors);
    const std::string hash = sha256_of_file(file);
    fs::rename(file, path_of(hash), error);
    if (error) throw WriteError(write_failure(path_of(hash), error.value()));
    fs::remove_all(half, error);
    sync(folder_);
    written_.insert(hash);
    hashes_[path_of(hash)] = hash;
    return hash;
  } catch (...) {  // on a full disk its space is needed
    fs::remove_all(half, error);
    throw;
  }
}

fs::path FrozenPart::find(const fs::path& checkpoint, const std::string& hash) {
  const std::string name = frozen_part_name(hash);
  const fs::path beside = checkpoint.parent_path() / name,
                 above = checkpoint.parent_path().parent_path() / name;
  const fs::path& path = fs::exists(beside) ? beside : above;
  if (!fs::exists(path))
    throw InputError((checkpoint / kState).string(),
                     "expected the weights that are not trained in " + beside.string() +
                         ", received no such file");
  const auto known = hashes_.find(path);
  const std::string content = known != hashes_.end() ? known->second : sha256_of_file(path);
  hashes_[path] = content;
  if (content != hash) throw InputError(path.string(), kOtherContent);
  return path;
}

void FrozenPart::loaded(const Modules& model, const fs::path& file, const std::string& hash) {
  const std::vector<std::string> names = weights::TensorFile(file).names();
  if (file != path_of(hash) || names_of(frozen_in(model)) != std::set(names.begin(), names.end()))
    return;
  hash_ = hash;
  saved_ = versions_of(model);
  written_.insert(hash);
}

bool FrozenPart::is_loaded(const Modules& model, const std::string& hash) const {
  return !hash.empty() && hash == hash_ && versions_of(model) == saved_;
}

void FrozenPart::remove_unused() const {
  std::set<std::string> used = written_;
  std::vector<fs::path> parts;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error))
    if (is_frozen_part(entry.path())) parts.push_back(entry.path());
  if (parts.size() <= 1) return;
  add_named_in(folder_, used);
  for (const auto& entry : fs::directory_iterator(folder_, error))
    if (entry.is_directory(error)) add_named_in(entry.path(), used);
  for (const fs::path& part : parts)
    if (std::none_of(used.begin(), used.end(), [&](const std::string& hash) {
          return part.filename() == frozen_part_name(hash);
        }))
      fs::remove(part, error);
}

Bytes FrozenPart::bytes_to_write(const Modules& model) const {
  return is_loaded(model, hash_) ? Bytes{} : bytes_of(frozen_in(model));
}

}  // namespace headroom::train::detail

#include "headroom/train/checkpoint.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/host_memory.h"
#include "headroom/base/run_folder.h"
#include "headroom/base/sha256.h"
#include "headroom/libtorch/random_state.h"
#include "headroom/train/detail/checkpoint_files.h"
#include "headroom/train/detail/checkpoint_reading.h"
#include "headroom/train/detail/frozen_part.h"
#include "headroom/weights/tensor_files.h"

namespace headroom::train {
namespace {

namespace fs = std::filesystem;
using detail::kModel;
using detail::kOptimizer;
using detail::kRandom;
using detail::kState;
using weights::NamedTensors;

constexpr const char* kUnfinished = ".unfinished";

// ---- The state of a run ----

struct Run {
  NamedTensors model, optimizer, random;
  Json state;
};

// Of all stages, under the names of the parameters.
NamedTensors states_in(Step& step) {
  NamedTensors tensors;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(step.layout().stages); ++rank) {
    const optim::Optimizer& optimizer = step.optimizer(rank);
    const std::vector<std::string> names = detail::names_in(step.module(rank), optimizer);
    for (std::size_t i = 0; i < names.size(); ++i)
      for (const auto& [name, state] : optimizer.state(i))
        tensors.emplace_back(names[i] + "." + name, state);
  }
  return tensors;
}

// All but the parameters that are not trained.
NamedTensors changing_in(Step& step) {
  const detail::Modules model = detail::model_of(step);
  NamedTensors tensors =
      detail::parameters_of(model, [](const at::Tensor& one) { return one.requires_grad(); });
  for (auto& [name, buffer] : detail::buffers_of(model)) tensors.emplace_back(name, buffer);
  for (auto& [name, tensor] : tensors) tensor = tensor.detach();
  return tensors;
}

Run run_of(Step& step, const std::string& more) {
  Run run{.model = changing_in(step),
          .optimizer = states_in(step),
          .random = libtorch::RandomState(libtorch::devices_in_use()).named(),
          .state = {{"schema", 1}, {"step", step.steps()}, {"plan", to_json(step.plan())}}};
  if (const optim::LossScaler* scaler = step.scaler())
    run.state["scaler"] = {{"factor", scaler->factor()}, {"good_steps", scaler->good_steps()}};
  run.state["more"] = more;
  return run;
}

Bytes bytes_of(const Run& run) {
  Bytes all;
  for (const NamedTensors* tensors : {&run.model, &run.optimizer, &run.random})
    all += detail::bytes_of(*tensors);
  return all;
}

// ---- Writing ----

void write_into(const fs::path& unfinished, const Run& run) {
  detail::make_folder(unfinished);
  Json state = run.state;
  for (const auto& [name, tensors] :
       {std::pair(kModel, &run.model), std::pair(kOptimizer, &run.optimizer),
        std::pair(kRandom, &run.random)}) {
    weights::save_tensors(unfinished / name, *tensors);
    state["sha256"][name] = sha256_of_file(unfinished / name);
  }
  state["sha256"][kState] = detail::hash_of(state);
  write_file_atomically(unfinished / kState, state.dump(1) + "\n");
  detail::sync(unfinished);
}

// Removes the files of a checkpoint and nothing else: a folder with a file of the user's stays.
void remove_checkpoint(const fs::path& folder) {
  std::error_code error;
  for (const char* name : {kState, kModel, kOptimizer, kRandom}) fs::remove(folder / name, error);
  fs::remove(folder, error);
}

void write(const Run& run, const fs::path& folder) {
  const fs::path unfinished = folder.string() + kUnfinished;
  std::error_code error;
  fs::remove_all(unfinished, error);
  try {
    write_into(unfinished, run);
  } catch (...) {  // on a full disk its space is needed
    fs::remove_all(unfinished, error);
    throw;
  }
  remove_checkpoint(folder);  // of the same step, from a run that was resumed before it
  fs::rename(unfinished, folder, error);
  if (error) throw WriteError(write_failure(folder, error.value()));
  detail::sync(folder.parent_path());
}

}  // namespace

// Writes in a thread, one checkpoint at a time.
class Checkpoints::Writer {
 public:
  void begin(Run run, fs::path folder) {
    is_idle_ = false;
    thread_ = std::thread([this, run = std::move(run), folder = std::move(folder)] {
      try {
        write(run, folder);
      } catch (...) {
        failure_ = std::current_exception();
      }
      is_idle_ = true;
    });
  }
  [[nodiscard]] bool is_idle() const { return is_idle_; }
  void wait() {
    if (thread_.joinable()) thread_.join();
    if (const auto failure = std::exchange(failure_, nullptr)) std::rethrow_exception(failure);
  }
  ~Writer() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::thread thread_;
  std::exception_ptr failure_;
  std::atomic<bool> is_idle_{true};
};

Checkpoints::Checkpoints(fs::path folder, int keep, std::shared_ptr<detail::FrozenPart> frozen)
    : folder_(std::move(folder)),
      keep_(std::max(1, keep)),
      frozen_(frozen ? std::move(frozen) : std::make_shared<detail::FrozenPart>(folder_)),
      writer_(std::make_unique<Writer>()) {}

Checkpoints::~Checkpoints() {
  try {
    wait();
  } catch (const std::exception&) {  // the older checkpoints are there
  }
}

std::vector<fs::path> Checkpoints::all() const {
  std::vector<fs::path> folders;
  for (const CheckpointFolder& one : checkpoints_in(folder_)) folders.push_back(one.path);
  return folders;
}

void Checkpoints::remove_half_written() {
  if (std::exchange(is_clean_, true)) return;
  detail::make_folder(folder_);
  std::error_code error;
  std::vector<fs::path> halves;
  for (const auto& entry : fs::directory_iterator(folder_, error))
    if (is_half_written_checkpoint(entry.path()) || entry.path().filename() == kHalfFrozenPart)
      halves.push_back(entry.path());
  for (const fs::path& half : halves) fs::remove_all(half, error);
}

void Checkpoints::save(Step& step, const std::string& more) {
  wait();
  remove_half_written();
  char name[32];
  std::snprintf(name, sizeof name, "checkpoint-%08lld", static_cast<long long>(step.steps()));
  Run run = run_of(step, more);
  if (const std::string hash = frozen_->save(detail::model_of(step)); !hash.empty())
    run.state["frozen"] = hash;
  writing_ = step.steps();
  if (const auto host = host_memory_to_use(); host && bytes_of(run) > *host)
    return write(run, folder_ / name);  // a tensor at a time
  try {
    Run copies = run;
    for (NamedTensors* tensors : {&copies.model, &copies.optimizer, &copies.random})
      for (auto& [one, tensor] : *tensors)
        tensor = tensor.to(at::kCPU, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
    writer_->begin(std::move(copies), folder_ / name);
  } catch (const c10::Error&) {  // no host memory for copies
    write(run, folder_ / name);
  }
}

bool Checkpoints::is_idle() const {
  return writer_->is_idle();
}

void Checkpoints::wait() {
  const std::int64_t step = std::exchange(writing_, -1);
  writer_->wait();
  if (step < 0) return;
  written_ = step;
  remove_old();
}

void Checkpoints::remove_old() const {
  int left = keep_;
  for (const CheckpointFolder& one : checkpoints_in(folder_))
    if (one.step <= written_ && --left < 0) remove_checkpoint(one.path);
  frozen_->remove_unused();
}

std::optional<FoundCheckpoint> Checkpoints::load(Step& step,
                                                 const std::vector<fs::path>& also) const {
  writer_->wait();
  std::vector<CheckpointFolder> all = checkpoints_in(folder_);
  for (const fs::path& folder : also)
    for (CheckpointFolder& one : checkpoints_in(folder)) all.push_back(std::move(one));
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& one, const auto& other) { return one.step > other.step; });
  std::vector<std::string> refused;
  std::vector<fs::path> refused_folders;
  for (const auto& [folder, number] : all) {
    try {
      FoundCheckpoint found = detail::read_checkpoint(folder, *frozen_, step);
      found.refused = std::move(refused);
      found.refused_folders = std::move(refused_folders);
      return found;
    } catch (...) {
      refused.push_back(detail::why_refused(folder));
      refused_folders.push_back(folder);
    }
  }
  if (!refused.empty()) throw InputError(folder_.string(), "no checkpoint is sound: " + refused[0]);
  return {};
}

std::optional<std::int64_t> Checkpoints::load_weights(Step& step) const {
  writer_->wait();
  for (const auto& [folder, number] : checkpoints_in(folder_)) {
    try {
      detail::read_weights(folder, *frozen_, step);
      return number;
    } catch (...) {
      static_cast<void>(detail::why_refused(folder));  // then an older one
    }
  }
  return {};
}

std::optional<std::string> Checkpoints::newest_more() const {
  for (const auto& [folder, number] : checkpoints_in(folder_)) {
    try {
      return detail::sound_state(folder, *frozen_).at("more").get<std::string>();
    } catch (...) {
      static_cast<void>(detail::why_refused(folder));
    }
  }
  return {};
}

Bytes Checkpoints::bytes(Step& step) const {
  return bytes_of(run_of(step, {}));
}

Bytes Checkpoints::frozen_bytes(Step& step) const {
  return frozen_->bytes_to_write(detail::model_of(step));
}

}  // namespace headroom::train

#include "headroom/train/checkpoint.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "headroom/base/descriptor.h"
#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/host_memory.h"
#include "headroom/base/run_folder.h"
#include "headroom/base/sha256.h"
#include "headroom/libtorch/random_state.h"
#include "headroom/weights/tensor_files.h"

namespace headroom::train {
namespace {

namespace fs = std::filesystem;
using at::Tensor;
using weights::NamedTensors;
using weights::TensorFile;

constexpr const char* kUnfinished = ".unfinished";
constexpr const char* kState = "state.json";
constexpr const char* kModel = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kRandom = "random.safetensors";

// ---- The state of a run ----

struct Run {
  NamedTensors model, optimizer, random;
  Json state;
};

NamedTensors tensors_of(const torch::nn::Module& module) {
  NamedTensors tensors;
  for (const auto& parameter : module.named_parameters())
    tensors.emplace_back(parameter.key(), parameter.value().detach());
  for (const auto& buffer : module.named_buffers())
    if (buffer.value().defined()) tensors.emplace_back(buffer.key(), buffer.value().detach());
  return tensors;
}

NamedTensors tensors_of(const optim::Optimizer& optimizer) {
  NamedTensors tensors;
  for (std::size_t i = 0; i < optimizer.parameters().size(); ++i)
    for (const auto& [name, state] : optimizer.state(i))
      tensors.emplace_back(std::to_string(i) + "." + name, state);
  return tensors;
}

Run run_of(Step& step, const std::string& more) {
  Run run{.model = tensors_of(step.module()),
          .optimizer = tensors_of(step.optimizer()),
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
    for (const auto& [name, tensor] : *tensors)
      all += Bytes{static_cast<std::int64_t>(tensor.nbytes())};
  return all;
}

// The hash of the state without its own hash.
std::string hash_of(const Json& state) {
  Sha256 hash;
  hash.add(state.dump());
  return hash.hex();
}

// ---- Writing ----

void sync(const fs::path& path) {
  const Descriptor open(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (open.get() < 0 || ::fsync(open.get()) != 0) throw WriteError(write_failure(path, errno));
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw WriteError(write_failure(folder, error.value()));
}

void write_into(const fs::path& unfinished, const Run& run) {
  make_folder(unfinished);
  Json state = run.state;
  for (const auto& [name, tensors] :
       {std::pair(kModel, &run.model), std::pair(kOptimizer, &run.optimizer),
        std::pair(kRandom, &run.random)}) {
    weights::save_tensors(unfinished / name, *tensors);
    state["sha256"][name] = sha256_of_file(unfinished / name);
  }
  state["sha256"][kState] = hash_of(state);
  write_file_atomically(unfinished / kState, state.dump(1) + "\n");
  sync(unfinished);
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
  sync(folder.parent_path());
}

// ---- Reading ----

void check_files(const fs::path& folder, const Json& state) {
  Json without = state;
  without.at("sha256").erase(kState);
  if (hash_of(without) != state.at("sha256").at(kState).get<std::string>())
    throw InputError((folder / kState).string(), "its content is not what was written");
  for (const char* name : {kModel, kOptimizer, kRandom})
    if (sha256_of_file(folder / name) != state.at("sha256").at(name).get<std::string>())
      throw InputError((folder / name).string(), "its content is not what was written");
}

void check_fits(const TensorFile& file, const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors)
    if (at::IntArrayRef(file.shape(name)) != tensor.sizes())
      throw InputError(name, "expected the shape " + c10::str(tensor.sizes()) + ", received " +
                                 c10::str(at::IntArrayRef(file.shape(name))));
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

Json sound_state(const fs::path& folder) {
  const Json state = parse_json(read_input(folder / kState), (folder / kState).string());
  check_files(folder, state);
  return state;
}

void read_weights(const TensorFile& model, const NamedTensors& tensors) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : tensors) model.read_into(name, tensor);
}

FoundCheckpoint read(const fs::path& folder, Step& step) {
  const Json state = sound_state(folder);
  const TensorFile model(folder / kModel), optimizer(folder / kOptimizer), random(folder / kRandom);
  const NamedTensors tensors = tensors_of(step.module());
  check_fits(model, tensors);
  const std::vector<optim::State> states = states_in(optimizer, step.optimizer());
  FoundCheckpoint found{.folder = folder,
                        .step = state.at("step").get<std::int64_t>(),
                        .plan = plan_from(state.at("plan"), (folder / kState).string()),
                        .more = state.at("more").get<std::string>()};
  step.optimizer().reserve();
  found.same_optimizer = suit(states, step.optimizer());
  if (found.same_optimizer) set_states(step.optimizer(), states);
  read_weights(model, tensors);
  if (optim::LossScaler* scaler = step.scaler(); scaler != nullptr && state.contains("scaler"))
    scaler->restore(state["scaler"].at("factor").get<double>(),
                    state["scaler"].at("good_steps").get<std::int64_t>());
  step.set_steps(found.step);
  NamedTensors generators;
  for (const std::string& name : random.names()) generators.emplace_back(name, random.read(name));
  found.same_random_numbers = libtorch::RandomState::restore(generators);
  return found;
}

// Why it cannot be used; memory that ran out says nothing about a checkpoint.
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

Checkpoints::Checkpoints(fs::path folder, int keep)
    : folder_(std::move(folder)), keep_(std::max(1, keep)), writer_(std::make_unique<Writer>()) {}

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
  make_folder(folder_);
  std::error_code error;
  std::vector<fs::path> halves;
  for (const auto& entry : fs::directory_iterator(folder_, error))
    if (is_half_written_checkpoint(entry.path())) halves.push_back(entry.path());
  for (const fs::path& half : halves) fs::remove_all(half, error);
}

void Checkpoints::save(Step& step, const std::string& more) {
  wait();
  remove_half_written();
  char name[32];
  std::snprintf(name, sizeof name, "checkpoint-%08lld", static_cast<long long>(step.steps()));
  Run run = run_of(step, more);
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
      FoundCheckpoint found = read(folder, step);
      found.refused = std::move(refused);
      found.refused_folders = std::move(refused_folders);
      return found;
    } catch (...) {
      refused.push_back(why_refused(folder));
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
      static_cast<void>(sound_state(folder));
      const TensorFile model(folder / kModel);
      const NamedTensors tensors = tensors_of(step.module());
      check_fits(model, tensors);
      read_weights(model, tensors);
      return number;
    } catch (...) {
      static_cast<void>(why_refused(folder));  // then an older one
    }
  }
  return {};
}

std::optional<std::string> Checkpoints::newest_more() const {
  for (const auto& [folder, number] : checkpoints_in(folder_)) {
    try {
      return sound_state(folder).at("more").get<std::string>();
    } catch (...) {
      static_cast<void>(why_refused(folder));
    }
  }
  return {};
}

Bytes checkpoint_bytes(Step& step) {
  return bytes_of(run_of(step, {}));
}

}  // namespace headroom::train

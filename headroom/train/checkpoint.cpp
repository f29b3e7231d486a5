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
#include "headroom/base/sha256.h"
#include "headroom/libtorch/random_state.h"
#include "headroom/models/tensor_files.h"

namespace headroom::train {
namespace {

namespace fs = std::filesystem;
using at::Tensor;
using models::NamedTensors;
using models::TensorFile;

constexpr const char* kPrefix = "checkpoint-";
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

// Of the state without its own hash.
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

void write_into(const fs::path& unfinished, const Run& run) {
  fs::create_directories(unfinished);
  Json state = run.state;
  for (const auto& [name, tensors] :
       {std::pair(kModel, &run.model), std::pair(kOptimizer, &run.optimizer),
        std::pair(kRandom, &run.random)}) {
    models::save_tensors(unfinished / name, *tensors);
    state["sha256"][name] = sha256_of_file(unfinished / name);
  }
  state["sha256"][kState] = hash_of(state);
  write_file_atomically(unfinished / kState, state.dump(1) + "\n");
  sync(unfinished);
}

void write(const Run& run, const fs::path& folder) {
  const fs::path unfinished = folder.string() + kUnfinished;
  fs::remove_all(unfinished);
  try {
    write_into(unfinished, run);
  } catch (...) {  // on a full disk its space is needed
    std::error_code error;
    fs::remove_all(unfinished, error);
    throw;
  }
  fs::remove_all(folder);  // of the same step, from a run that was resumed before it
  fs::rename(unfinished, folder);
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

FoundCheckpoint read(const fs::path& folder, Step& step) {
  const Json state = parse_json(read_input(folder / kState), (folder / kState).string());
  check_files(folder, state);
  const TensorFile model(folder / kModel), optimizer(folder / kOptimizer), random(folder / kRandom);
  const NamedTensors tensors = tensors_of(step.module());
  check_fits(model, tensors);
  const std::vector<optim::State> states = states_in(optimizer, step.optimizer());
  const at::NoGradGuard no_grad;
  set_states(step.optimizer(), states);
  for (const auto& [name, tensor] : tensors) model.read_into(name, tensor);
  if (optim::LossScaler* scaler = step.scaler(); scaler != nullptr && state.contains("scaler"))
    scaler->restore(state["scaler"].at("factor").get<double>(),
                    state["scaler"].at("good_steps").get<std::int64_t>());
  FoundCheckpoint found{.folder = folder,
                        .step = state.at("step").get<std::int64_t>(),
                        .plan = plan_from(state.at("plan"), (folder / kState).string()),
                        .more = state.at("more").get<std::string>()};
  step.set_steps(found.step);
  NamedTensors generators;
  for (const std::string& name : random.names()) generators.emplace_back(name, random.read(name));
  found.same_random_numbers = libtorch::RandomState::restore(generators);
  return found;
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
    : folder_(std::move(folder)), keep_(std::max(1, keep)), writer_(std::make_unique<Writer>()) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw WriteError(write_failure(folder_, error.value()));
  for (const auto& entry : fs::directory_iterator(folder_))
    if (entry.path().filename().string().starts_with(kPrefix) &&
        entry.path().extension() == kUnfinished)
      fs::remove_all(entry.path(), error);
}

Checkpoints::~Checkpoints() {
  try {
    wait();
  } catch (const std::exception&) {  // the older checkpoints are there
  }
}

std::vector<fs::path> Checkpoints::all() const {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(folder_))
    if (entry.is_directory() && entry.path().filename().string().starts_with(kPrefix) &&
        entry.path().extension() != kUnfinished)
      folders.push_back(entry.path());
  std::sort(folders.rbegin(), folders.rend());
  return folders;
}

void Checkpoints::save(Step& step, const std::string& more) {
  wait();
  char name[32];
  std::snprintf(name, sizeof name, "%s%08lld", kPrefix, static_cast<long long>(step.steps()));
  Run run = run_of(step, more);
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
  writer_->wait();
  remove_old();
}

void Checkpoints::remove_old() const {
  const std::vector<fs::path> folders = all();
  for (std::size_t i = static_cast<std::size_t>(keep_); i < folders.size(); ++i) {
    std::error_code error;
    fs::remove_all(folders[i], error);
  }
}

std::optional<FoundCheckpoint> Checkpoints::load(Step& step) const {
  writer_->wait();
  std::vector<std::string> refused;
  for (const fs::path& folder : all()) {
    try {
      FoundCheckpoint found = read(folder, step);
      found.refused = std::move(refused);
      return found;
    } catch (const c10::OutOfMemoryError&) {  // says nothing about the checkpoint
      throw;
    } catch (const Error& error) {
      refused.push_back(folder.string() + ": " + error.sentence());
    } catch (const std::exception& error) {  // of JSON, numbers, files
      refused.push_back(folder.string() + ": " + error.what());
    }
  }
  if (!refused.empty()) throw InputError(folder_.string(), "no checkpoint is sound: " + refused[0]);
  return {};
}

}  // namespace headroom::train

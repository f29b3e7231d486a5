// The bookkeeping behind calls.h: one Driver for the whole process.
#include "calls.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "state_file.h"

namespace fake_nvml {

struct OpaqueDevice {
  std::string card_uuid, mig_uuid;
};

namespace {

using Lock = std::unique_lock<std::mutex>;
using Clock = std::chrono::steady_clock;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// One line per call, written at once: several processes may share the file.
class CallLog {
 public:
  void open(const std::string& path) {
    if (path == path_) return;
    if (file_ >= 0) ::close(file_);
    file_ =
        path.empty() ? -1 : ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    path_ = path;
  }

  void write(Function function, std::optional<std::size_t> card) const {
    if (file_ < 0) return;
    const std::string line = std::string(kFunctionNames[static_cast<unsigned>(function)]) + " " +
                             (card ? std::to_string(*card) : "-") + "\n";
    // A test that reads the log notices a missing line; there is no caller to report to.
    [[maybe_unused]] const ssize_t written = ::write(file_, line.data(), line.size());
  }

 private:
  std::string path_;
  int file_ = -1;
};

class Driver {
 public:
  Status begin(Function function, const Locate& locate, Target& target);
  Status init(Function function);
  Status shut_down();
  void note(Function function);
  unsigned long calls_of(const FunctionSet& functions);
  DeviceHandle handle_of(const std::string& card_uuid, const std::string& mig_uuid);
  const OpaqueDevice* known(DeviceHandle handle);

 private:
  void read_environment();
  void refresh();
  void record(Function function, std::optional<std::size_t> card);
  const Fault* striking(Function function, std::optional<std::size_t> card);
  Status suffer(Lock& lock, Function function, std::optional<std::size_t> card);
  void hang(Lock& lock, std::string fault, std::optional<double> seconds);
  bool has_fault(const std::string& identity) const;

  std::mutex mutex_;
  StateFile file_{""};
  CallLog log_;
  unsigned initialised_ = 0;
  std::array<unsigned long, kFunctionCount> calls_{};
  // Matching calls so far, by the fault's identity: an edit elsewhere in the file keeps the count.
  std::map<std::string, std::uint64_t> fault_calls_;
  // Apart from mutex_, since handles are looked up while a call is being located.
  std::mutex handles_mutex_;
  std::vector<std::unique_ptr<OpaqueDevice>> handles_;
};

// Never destroyed: a thread that hangs in here may outlive main().
Driver& driver() {
  static Driver& the_driver = *new Driver;
  return the_driver;
}

// A test may close the library while a call still hangs in it; the code must then stay mapped.
void stay_loaded() {
  Dl_info info{};
  if (::dladdr(kFunctionNames, &info) == 0) return;
  [[maybe_unused]] static void* const self =
      ::dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

// The environment counts only between sessions, as a test changes it before nvmlInit. A running
// session must not depend on who calls setenv meanwhile.
void Driver::read_environment() {
  if (initialised_ > 0) return;
  if (std::string path = environment("HEADROOM_FAKE_NVML"); path != file_.path()) {
    file_ = StateFile(std::move(path));
    fault_calls_.clear();
  }
  log_.open(environment("HEADROOM_FAKE_NVML_LOG"));
}

void Driver::refresh() {
  if (!file_.refresh()) return;
  std::erase_if(fault_calls_, [this](const auto& entry) { return !has_fault(entry.first); });
}

void Driver::record(Function function, std::optional<std::size_t> card) {
  ++calls_[static_cast<unsigned>(function)];
  log_.write(function, card);
}

bool Driver::has_fault(const std::string& identity) const {
  if (file_.state() == nullptr) return false;
  for (const Fault& fault : file_.state()->faults) {
    if (fault.identity == identity) return true;
  }
  return false;
}

// Every fault that matches counts the call, the first one that is due strikes.
const Fault* Driver::striking(Function function, std::optional<std::size_t> card) {
  const Fault* due = nullptr;
  for (const Fault& fault : file_.state()->faults) {
    if (!fault.functions.test(static_cast<unsigned>(function))) continue;
    if (fault.card && (!card || *fault.card != *card)) continue;
    const std::uint64_t before = fault_calls_[fault.identity]++;
    const bool is_due =
        before >= fault.after && (!fault.times || before - fault.after < *fault.times);
    if (is_due && due == nullptr) due = &fault;
  }
  return due;
}

void Driver::hang(Lock& lock, std::string fault, std::optional<double> seconds) {
  constexpr std::chrono::milliseconds kStep{50};
  const Clock::time_point start = Clock::now();
  while (has_fault(fault)) {
    Clock::duration rest = kStep;
    if (seconds) {
      const auto whole = std::chrono::duration<double>(*seconds);
      rest = std::min<Clock::duration>(
          kStep, std::chrono::duration_cast<Clock::duration>(whole - (Clock::now() - start)));
    }
    if (rest <= Clock::duration::zero()) return;
    lock.unlock();
    std::this_thread::sleep_for(rest);
    lock.lock();
    refresh();
  }
}

Status Driver::suffer(Lock& lock, Function function, std::optional<std::size_t> card) {
  const Fault* fault = striking(function, card);
  if (fault == nullptr) return Status::kSuccess;
  if (!fault->hang) return fault->status;
  hang(lock, fault->identity, fault->hang_s);
  return Status::kSuccess;
}

Status Driver::begin(Function function, const Locate& locate, Target& target) {
  Lock lock(mutex_);
  read_environment();
  if (initialised_ == 0) {
    record(function, std::nullopt);
    return Status::kUninitialized;
  }
  refresh();
  Place place = locate(*file_.state());
  record(function, place.card);
  // A lost card or a wrong index has its own answer; faults strike calls that would have worked.
  if (place.status != Status::kSuccess) return place.status;
  if (const Status status = suffer(lock, function, place.card); status != Status::kSuccess) {
    return status;
  }
  target.state = file_.state();
  place = locate(*target.state);  // a hang may have ended in another state than it began
  if (place.status != Status::kSuccess) return place.status;
  if (!place.card) return Status::kSuccess;
  target.card_index = static_cast<unsigned>(*place.card);
  target.card = &target.state->cards[*place.card];
  if (target.card->unsupported.test(static_cast<unsigned>(function))) return Status::kNotSupported;
  if (place.mig) {
    target.mig_index = static_cast<unsigned>(*place.mig);
    target.mig = &*target.card->mig->devices[*place.mig];
  }
  return Status::kSuccess;
}

Status Driver::init(Function function) {
  stay_loaded();
  Lock lock(mutex_);
  read_environment();
  refresh();
  record(function, std::nullopt);
  if (file_.state() == nullptr) return Status::kDriverNotLoaded;
  if (const Status status = suffer(lock, function, std::nullopt); status != Status::kSuccess) {
    return status;
  }
  if (file_.state()->init != Status::kSuccess) return file_.state()->init;
  ++initialised_;
  return Status::kSuccess;
}

Status Driver::shut_down() {
  Lock lock(mutex_);
  read_environment();
  record(Function::nvmlShutdown, std::nullopt);
  if (initialised_ == 0) return Status::kUninitialized;
  refresh();
  const Status status = suffer(lock, Function::nvmlShutdown, std::nullopt);
  if (status == Status::kSuccess && initialised_ > 0) --initialised_;
  return status;
}

void Driver::note(Function function) {
  const Lock lock(mutex_);
  read_environment();
  record(function, std::nullopt);
}

unsigned long Driver::calls_of(const FunctionSet& functions) {
  const Lock lock(mutex_);
  unsigned long sum = 0;
  for (std::size_t i = 0; i < kFunctionCount; ++i) sum += functions.test(i) ? calls_[i] : 0;
  return sum;
}

DeviceHandle Driver::handle_of(const std::string& card_uuid, const std::string& mig_uuid) {
  const Lock lock(handles_mutex_);
  for (const auto& handle : handles_) {
    if (handle->card_uuid == card_uuid && handle->mig_uuid == mig_uuid) return handle.get();
  }
  handles_.push_back(std::make_unique<OpaqueDevice>(OpaqueDevice{card_uuid, mig_uuid}));
  return handles_.back().get();
}

const OpaqueDevice* Driver::known(DeviceHandle handle) {
  const Lock lock(handles_mutex_);
  for (const auto& one : handles_) {
    if (one.get() == handle) return handle;
  }
  return nullptr;
}

std::optional<std::size_t> find_mig(const Card& card, const std::string& uuid) {
  if (!card.mig_on()) return std::nullopt;
  for (std::size_t i = 0; i < card.mig->devices.size(); ++i) {
    if (card.mig->devices[i] && card.mig->devices[i]->uuid == uuid) return i;
  }
  return std::nullopt;
}

}  // namespace

Status begin(Function function, const Locate& locate, Target& target) {
  return driver().begin(function, locate, target);
}

Place locate_handle(const State& state, DeviceHandle handle) {
  const OpaqueDevice* device = driver().known(handle);
  if (device == nullptr) return {Status::kInvalidArgument, {}, {}};
  for (std::size_t i = 0; i < state.cards.size(); ++i) {
    if (state.cards[i].uuid != device->card_uuid) continue;
    if (device->mig_uuid.empty()) return {Status::kSuccess, i, {}};
    const auto mig = find_mig(state.cards[i], device->mig_uuid);
    // The documentation calls the handle of a destroyed MIG device invalid.
    return {mig ? Status::kSuccess : Status::kInvalidArgument, i, mig};
  }
  return {Status::kGpuIsLost, {}, {}};
}

DeviceHandle handle_of(const std::string& card_uuid, const std::string& mig_uuid) {
  return driver().handle_of(card_uuid, mig_uuid);
}

Status init(Function function) {
  return driver().init(function);
}

Status shut_down() {
  return driver().shut_down();
}

void note(Function function) {
  driver().note(function);
}

unsigned long calls_of(const std::string& pattern) {
  try {
    return driver().calls_of(functions_matching(pattern));
  } catch (const BadState&) {
    return 0;
  }
}

Status give_text(const std::string& text, char* out, unsigned length) {
  if (out == nullptr) return Status::kInvalidArgument;
  if (text.size() >= length) return Status::kInsufficientSize;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return Status::kSuccess;
}

}  // namespace fake_nvml

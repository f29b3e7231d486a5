#include "headroom/cli/core/doctor_checks.h"

#include <fmt/format.h>

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "headroom/allocator/settings.h"
#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "headroom/base/process.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/start_engine.h"
#include "headroom/gpu/nvml.h"
#include "headroom/gpu/sampler.h"
#include "headroom/lease/directory.h"
#include "headroom/lease/site.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;
using namespace headroom::literals;

constexpr Seconds kLimit{3.0};

struct Facts {
  gpu::Machine machine;
  gpu::CudaView cuda;
  gpu::CudaEnvironment environment;
  std::optional<TorchWheel> torch;
};

bool exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool in_container() {
  return exists("/.dockerenv") || exists("/run/.containerenv") ||
         environment("container").has_value();
}

Check driver_check(const Facts& facts) {
  const gpu::Machine& machine = facts.machine;
  if (machine.driver && machine.cards.empty())
    return {"driver", Status::fail, fmt::format("driver {}, but it sees no GPU", *machine.driver),
            "lspci | grep -i nvidia; dmesg | grep -i nvrm"};
  if (machine.driver) {
    const std::string cuda =
        machine.cuda_driver ? ", CUDA " + gpu::cuda_version(*machine.cuda_driver) : "";
    return {"driver", Status::pass,
            fmt::format("driver {}{}, {}", *machine.driver, cuda,
                        counted(static_cast<long long>(machine.cards.size()), "device")),
            ""};
  }
  if (machine.silent)
    return {"driver", Status::fail, machine.why_no_driver,
            "dmesg | grep -i -e nvrm -e xid; a driver that hangs mostly needs a reboot"};
  return {"driver", Status::warn, machine.why_no_driver,
          "without a GPU everything works on simulated cards: headroom --gpus sim:8x24GiB"};
}

// An NVIDIA device on the bus, with or without a driver; containers see /sys too.
bool has_nvidia_device() {
  std::error_code error;
  for (const auto& device : fs::directory_iterator("/sys/bus/pci/devices", error)) {
    const auto vendor = read_file(device.path() / "vendor").value_or("");
    const auto kind = read_file(device.path() / "class").value_or("");
    if (vendor.starts_with("0x10de") && kind.starts_with("0x03"))
      return true;  // a display controller
  }
  return false;
}

// The first reason, in the order in which CUDA would meet them.
std::optional<Check> why_no_cuda(const Facts& facts) {
  const auto because = [](std::string found, std::string to_try) {
    return Check{"cuda", Status::fail, std::move(found), std::move(to_try)};
  };
  const auto& torch = facts.torch;
  const gpu::Machine& machine = facts.machine;
  if ((torch && torch->hip) || (!machine.driver && exists("/dev/kfd")))
    return because("an AMD GPU or a ROCm build of torch: Headroom does not support them",
                   "use an NVIDIA GPU, or simulated cards");
  const std::string platform = read_file("/proc/device-tree/compatible").value_or("");
  if (platform.find("apple,") != std::string::npos)
    return because("an Apple GPU: Headroom does not support it", "simulated cards");
  if (!machine.driver && !machine.silent) {
    if (!has_nvidia_device())
      return Check{"cuda", Status::warn, "this machine has no NVIDIA GPU", "simulated cards"};
    if (in_container() && !exists("/dev/nvidiactl"))
      return because("a container without the driver: neither its library nor /dev/nvidia* is here",
                     "start it with --gpus all (NVIDIA Container Toolkit)");
    if (exists("/proc/driver/nvidia/version") && !exists("/dev/nvidiactl"))
      return because("the kernel module is loaded, but the device nodes /dev/nvidia* are missing",
                     "run nvidia-modprobe -u -c=0, or nvidia-smi once, as root");
    return because("there is an NVIDIA GPU, but no driver for it", "install NVIDIA's driver");
  }
  if (machine.silent) return because("unknown: " + machine.why_no_driver, "see the driver's check");
  if (machine.cards.empty()) return because("the driver sees no GPU", "nvidia-smi -L");
  if (!facts.cuda.why_empty.empty())
    return because(facts.cuda.why_empty,
                   "unset CUDA_VISIBLE_DEVICES, or list a GPU of this machine");
  if (torch && !torch->cuda)
    return because(fmt::format("torch {} is a build for the CPU only", torch->version),
                   install_torch() + " from PyPI, which is built for CUDA 13");
  if (torch && machine.cuda_driver) {
    const auto wanted = to_integer(split(*torch->cuda, '.')[0]);
    if (wanted && *machine.cuda_driver / 1000 < *wanted)
      return because(fmt::format("the driver runs CUDA {}, torch is built for CUDA {}",
                                 gpu::cuda_version(*machine.cuda_driver), *torch->cuda),
                     "a newer driver (580 or later for CUDA 13)");
  }
  return {};
}

Check cuda_check(const Facts& facts) {
  if (auto reason = why_no_cuda(facts)) return *reason;
  const auto& cards = facts.cuda.cards;
  return {"cuda", Status::pass,
          fmt::format("{} visible to CUDA, cuda:0 is {}",
                      counted(static_cast<long long>(cards.size()), "GPU"),
                      label(facts.machine.cards[cards.front()])),
          ""};
}

Check order_check(const Facts& facts) {
  const auto& order = facts.environment.device_order;
  const auto& visible = facts.environment.visible_devices;
  const std::string found = fmt::format("CUDA_DEVICE_ORDER={} CUDA_VISIBLE_DEVICES={}",
                                        order.value_or("(unset)"), visible.value_or("(unset)"));
  if (!facts.cuda.warnings.empty())
    return {"device order", Status::warn, found + ": " + facts.cuda.warnings[0],
            "export CUDA_DEVICE_ORDER=PCI_BUS_ID"};
  if (facts.cuda.order_is_estimated)
    return {
        "device order", Status::warn,
        found + ": cards of several kinds, which CUDA orders by its own estimate of their speed",
        "export CUDA_DEVICE_ORDER=PCI_BUS_ID"};
  if (order != "PCI_BUS_ID" && facts.machine.cards.size() > 1)
    return {"device order", Status::pass, found + ": cards of one kind, numbered by PCI address",
            ""};
  return {"device order", Status::pass, found, ""};
}

Check persistence_check(const Facts& facts) {
  if (facts.machine.silent)
    return {"persistence", Status::warn, "unknown: the driver does not answer", ""};
  for (const gpu::Card& card : facts.machine.cards)
    if (card.persistence == false && !card.slice)
      return {"persistence", Status::warn, "off: each query starts the driver again",
              "nvidia-smi -pm 1 (as root)"};
  return {"persistence", Status::pass, facts.machine.cards.empty() ? "no GPU" : "on", ""};
}

// Explains every option that is set, and the settings that Headroom recommends.
std::vector<std::string> explain_allocator(const allocator::EffectiveSettings& now,
                                           std::optional<Bytes> card_total) {
  std::vector<std::string> lines = now.notes;
  for (const auto& line : allocator::explain(now.settings))
    lines.push_back(fmt::format("{}:{} - {}", line.option, line.value, line.effect));
  const auto advice = allocator::recommend(now.source.text, card_total);
  if (!advice.settings.empty())
    lines.push_back(
        fmt::format("recommended: {} - {} {}", advice.settings, advice.reason, advice.price));
  return lines;
}

Check allocator_check(const Facts& facts) {
  try {
    const auto now = allocator::effective_settings(
        [](const std::string& name) { return environment(name.c_str()); });
    const auto total = gpu::smallest_total(facts.machine);
    const auto& name = now.source.variable;
    Check check{.name = "allocator settings",
                .found = name ? *name + "=" + now.source.text : "PyTorch's defaults",
                .details = explain_allocator(now, total)};
    if (!now.caching) {
      check.status = Status::warn;
      check.found += "; caching is switched off: slow, for debugging only";
      check.to_try = "unset PYTORCH_NO_CUDA_MEMORY_CACHING";
    } else if (!now.notes.empty()) {
      check.status = Status::warn;
      check.to_try = "keep one variable";
    }
    return check;
  } catch (const UsageError& error) {
    return {.name = "allocator settings",
            .status = Status::fail,
            .found = error.sentence(),
            .to_try = "correct it: PyTorch refuses to start with it"};
  }
}

Check blocking_check() {
  const std::string value = environment("CUDA_LAUNCH_BLOCKING").value_or("");
  if (value.empty() || value == "0") return {"CUDA_LAUNCH_BLOCKING", Status::pass, "not set", ""};
  return {"CUDA_LAUNCH_BLOCKING", Status::warn,
          value + ": every kernel waits for the previous one, which slows training down",
          "unset it after debugging"};
}

Check hidden_check(const Facts& facts) {
  if (facts.machine.silent)
    return {"hidden processes", Status::warn, "unknown: the driver does not answer", ""};
  long long hidden = 0;
  for (const gpu::Card& card : facts.machine.cards)
    for (const auto& process : card.processes.value_or(std::vector<gpu::GpuProcess>{}))
      if (process.kind == gpu::ProcessKind::other_namespace) ++hidden;
  const bool first = ProcessTable().in_first_pid_namespace();
  if (hidden > 0)
    return {"hidden processes", Status::warn,
            fmt::format("{} of GPU memory cannot be seen from here{}", counted(hidden, "holder"),
                        first ? "" : " (this is a container)"),
            !first             ? "start the container with --pid=host"
            : ::geteuid() == 0 ? "they may be ending; otherwise check from the host"
                               : "check as root"};
  return {"hidden processes", Status::pass,
          first ? "none" : "none (a container: others would show without a name)", ""};
}

Check limits_check() {
  std::vector<std::string> found;
  std::string to_try;
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) == 0) {
    const Bytes size{static_cast<std::int64_t>(shm.f_frsize) *
                     static_cast<std::int64_t>(shm.f_blocks)};
    found.push_back("/dev/shm " + to_string(size));
    // Docker's default of 64 MiB makes data loaders fail with a bus error.
    if (size < 1_GiB) to_try = "a larger /dev/shm (docker run --shm-size=8g): data loaders use it";
  }
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    found.push_back("open files " + std::to_string(files.rlim_cur));
    if (files.rlim_cur < 1024) to_try = "ulimit -n 65536";
  }
  return {"limits", to_try.empty() ? Status::pass : Status::warn, join(found, ", "), to_try};
}

std::string settings_for_engine(const gpu::Machine& machine) {
  if (machine.cards.empty()) return "";
  try {
    return engine_allocator_settings(gpu::smallest_total(machine));
  } catch (const UsageError&) {
    return "";  // allocator_check reports it
  }
}

Check libtorch_check(const Facts& facts) {
  const auto& torch = facts.torch;
  if (!find_engine())
    return {"LibTorch", Status::warn,
            "headroom-engine is not beside headroom: only the core is built", "make build"};
  if (!torch)
    return {"LibTorch", Status::fail,
            "no torch found (HEADROOM_TORCH, virtual environment, python3)",
            install_torch() + ", or set HEADROOM_TORCH to its torch folder"};
  const std::string where = fmt::format("torch {} in {}", torch->version, torch->folder.string());
  if (!torch->version.starts_with(wanted_torch() + "."))
    return {"LibTorch", Status::fail,
            fmt::format("{}: headroom-engine needs {}", where, wanted_torch()), install_torch()};
  // With the settings that every engine on real cards gets.
  const std::string settings = settings_for_engine(facts.machine);
  const CommandResult run = run_engine({"version", "--json"}, settings, kLimit);
  if (run.timed_out)
    return {"LibTorch", Status::fail, where + " does not start within 3 s",
            "try again; check the disk"};
  if (run.exit_code != 0)
    return {"LibTorch", Status::fail, where + ": headroom-engine does not start with it",
            "run headroom-engine version and read its message"};
  const std::string with = settings.empty() ? "" : ", started with " + settings;
  return {"LibTorch", Status::pass, where + with, ""};
}

Check state_check() {
  const fs::path folder = state_dir();
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error && ::access(folder.c_str(), W_OK) == 0)
    return {"state folder", Status::pass, folder.string(), ""};
  return {"state folder", Status::warn, folder.string() + " cannot be written",
          "set HEADROOM_STATE_DIR to a folder that you can write"};
}

// If some users do not see the leases, memory is promised twice.
Check lease_check() {
  try {
    const auto directory = lease::Directory::open();
    const std::string found = directory.path().string();
    const auto warnings = directory.warnings();
    if (!warnings.empty())
      return {"lease folder", Status::warn, warnings[0],
              "a folder of mode 1777 that all users of these GPUs see (HEADROOM_LEASE_DIR)"};
    if (::access(found.c_str(), W_OK) != 0)
      return {"lease folder", Status::warn, found + " cannot be written: no leases from here",
              "chmod 1777 " + found};
    const lease::Contents now = directory.contents();
    if (!now.warnings.empty())
      return {"lease folder", Status::warn, now.warnings[0], "headroom who; headroom clean"};
    return {"lease folder", Status::pass,
            found + ", " + counted(static_cast<long long>(now.leases.size()), "lease"), ""};
  } catch (const Error& error) {
    return {"lease folder", Status::warn, error.sentence(),
            "set HEADROOM_LEASE_DIR to a folder that you can write"};
  }
}

// Without this check, limits that are silently ignored would show only when the machine is full.
Check site_check() {
  const lease::Site site = lease::Site::read();
  if (site.file().empty()) return {"site file", Status::pass, "none: no limits on leases", ""};
  if (!site.trouble().empty())
    return {"site file", Status::fail,
            fmt::format("{} sets no limits: {}", site.file().string(), site.trouble()),
            "docs/formats/site.md describes its content"};
  const lease::Limit own = site.limit_of(::geteuid());
  std::string found = site.file().string() + ", for this user: ";
  found += own.reserved ? to_string(*own.reserved) + " reserved" : "any amount";
  found += ", " + (own.cards ? counted(*own.cards, "card") : std::string("any cards"));
  if (const auto& unknown = site.unknown_users(); !unknown.empty())
    return {"site file", Status::warn,
            fmt::format("{}; limits for {} limit no user", found, join(unknown, ", ")),
            "names of users that `id NAME` knows on this machine"};
  return {"site file", Status::pass, found, ""};
}

}  // namespace

std::vector<Check> run_checks() {
  Facts facts;
  gpu::Sampler sampler(gpu::make_nvml_source(), {.keep_sampling = false});
  facts.machine = sampler.fresh(kLimit);
  facts.environment = gpu::CudaEnvironment::current();
  facts.cuda = cuda_view(facts.machine, facts.environment);
  facts.torch = find_torch();
  return {driver_check(facts),    cuda_check(facts), order_check(facts),  persistence_check(facts),
          allocator_check(facts), blocking_check(),  hidden_check(facts), limits_check(),
          libtorch_check(facts),  state_check(),     lease_check(),       site_check()};
}

}  // namespace headroom::cli

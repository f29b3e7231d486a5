// NVML as C++ calls. Each returns a result or the reason why there is none, and uses the newest
// version of the function that the driver has. Thread-safe, like NVML itself. Never unloaded: a
// thread may hang inside it.
#pragma once

#include <dlfcn.h>

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "headroom/gpu/detail/nvml_abi.h"

namespace headroom::gpu::nvml {

// A value, or NVML's return code that says why there is none.
template <typename T>
class Answer {
 public:
  Answer(T value) : value_(std::move(value)) {}  // NOLINT: implicit like std::optional
  Answer(Return code) : code_(code) {}           // NOLINT

  explicit operator bool() const { return value_.has_value(); }
  const T& operator*() const { return *value_; }
  const T* operator->() const { return &*value_; }
  [[nodiscard]] Return code() const { return code_; }
  // For facts whose absence needs no explanation.
  [[nodiscard]] std::optional<T> optional() const { return value_; }

 private:
  std::optional<T> value_;
  Return code_ = kSuccess;
};

struct MemoryReading {
  unsigned long long total, free, used;
  std::optional<unsigned long long> reserved;  // empty before R510: then `used` contains it
};

struct ProcessReading {
  unsigned int pid;
  std::optional<unsigned long long> used;
  std::optional<unsigned int> gpu_instance;
};

class Library {
 public:
  // Loads and initializes NVML. A std::string result says why that failed, in one sentence.
  static std::variant<Library, std::string> load(const std::string& path);

  [[nodiscard]] std::string describe(Return code) const;

  // A function of the usual signature, by its names from the newest on:
  // Return f(arguments..., T* result).
  template <typename T, typename... Before>
  [[nodiscard]] Answer<T> ask(std::initializer_list<const char*> names, Before... before) const {
    auto* function = find<Return(Before..., T*)>(names);
    if (function == nullptr) return kFunctionNotFound;
    T value{};
    const Return code = function(before..., &value);
    if (code != kSuccess) return code;
    return value;
  }
  // Return f(arguments..., char* text, unsigned int size).
  template <typename... Before>
  [[nodiscard]] Answer<std::string> ask_text(const char* name, unsigned int size,
                                             Before... before) const {
    auto* function = find<Return(Before..., char*, unsigned int)>({name});
    if (function == nullptr) return kFunctionNotFound;
    std::string text(size, '\0');
    const Return code = function(before..., text.data(), size);
    if (code != kSuccess) return code;
    return text.substr(0, text.find('\0'));
  }

  [[nodiscard]] Answer<std::string> pci(Device device) const;
  [[nodiscard]] Answer<MemoryReading> memory(Device device) const;
  [[nodiscard]] Answer<std::pair<int, int>> capability(Device device) const;
  [[nodiscard]] Answer<std::vector<ProcessReading>> compute_processes(Device device) const;
  [[nodiscard]] Answer<std::vector<ProcessReading>> graphics_processes(Device device) const;
  // The process's peak memory, if root has switched accounting on.
  [[nodiscard]] Answer<unsigned long long> peak_memory(Device device, unsigned int pid) const;
  // Samples from the driver's own buffer (some seconds long), all processes mixed.
  [[nodiscard]] Answer<std::vector<ProcessUtilization>> process_utilization(Device device) const;

  [[nodiscard]] bool mig_enabled(Device device) const;
  [[nodiscard]] std::vector<Device> mig_devices(Device device) const;

 private:
  explicit Library(void* handle) : handle_(handle) {}

  // The function by the newest of these names that the driver has; null if it has none of them.
  template <typename Function>
  Function* find(std::initializer_list<const char*> names) const {
    for (const char* name : names)
      if (void* symbol = ::dlsym(handle_, name)) return reinterpret_cast<Function*>(symbol);
    return nullptr;
  }
  Answer<std::vector<ProcessReading>> processes(const char* v3, const char* v2, const char* v1,
                                                Device device) const;

  void* handle_;
  bool long_v3_entries_ = false;
};

}  // namespace headroom::gpu::nvml

#include "headroom/cuda/load.h"

#include <ATen/Context.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include "headroom/cuda/absence.h"

#pragma weak headroom_without_cuda

namespace headroom {
namespace {

std::mutex mutex;  // guards loading
std::atomic<const CudaFunctions*> loaded{nullptr};

// The folder of the library that contains this address.
std::filesystem::path folder_of(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

std::filesystem::path neighbour() {
  return folder_of(reinterpret_cast<const void*>(&cuda_functions)) / "libheadroom_cuda.so";
}

bool torch_cuda_is_loaded() {
  void* const handle = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
  if (handle != nullptr) dlclose(handle);
  return handle != nullptr;
}

const CudaFunctions& absent(const std::string& because) {
  no_cuda::set_reason(because);
  return no_cuda::functions();
}

std::string last_dl_error() {
  const char* const text = dlerror();
  return text != nullptr ? text : "unknown reason";
}

// "" on success.
std::string bring_in_torch_cuda() {
  // Never closed: a process that uses CUDA needs it anyway.
  if (dlopen("libcuda.so.1", RTLD_LAZY) == nullptr)
    return "there is no NVIDIA driver (" + last_dl_error() + ")";
  const auto at_torch = folder_of(reinterpret_cast<const void*>(&at::globalContext));
  if (dlopen((at_torch / "libtorch_cuda.so").c_str(), RTLD_LAZY | RTLD_GLOBAL) == nullptr)
    return "LibTorch's CUDA part cannot be loaded (" + last_dl_error() + ")";
  return "";
}

bool wanted_at_start() {
  const char* const said =
      std::getenv("HEADROOM_CUDA");  // NOLINT(concurrency-mt-unsafe): one thread
  if (said != nullptr && std::string_view(said) == "off") return false;
  return &headroom_without_cuda == nullptr || !headroom_without_cuda;
}

// A failure here is silent; load_cuda() tries again and reports it.
const bool looked_at_start = [] {
  if (wanted_at_start() && !torch_cuda_is_loaded()) static_cast<void>(bring_in_torch_cuda());
  return true;
}();

// "" if it is loaded and sees cards.
std::string load_torch_cuda() {
  if (const std::string problem = bring_in_torch_cuda(); !problem.empty()) return problem;
  if (!at::globalContext().hasCUDA())
    return "CUDA sees no card, or LibTorch had settled that there is no CUDA before it was loaded";
  return "";
}

}  // namespace

const CudaFunctions& load_cuda_from(const std::filesystem::path& library) {
  using Entry = const CudaFunctions* (*)(int version);
  const std::lock_guard lock(mutex);
  if (const CudaFunctions* before = loaded.load()) return *before;
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return absent(last_dl_error());
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, "headroom_cuda_functions"));
  if (entry == nullptr) return absent(library.string() + " is not Headroom's CUDA part");
  const CudaFunctions* const found = entry(kCudaFunctionsVersion);
  if (found == nullptr) return absent(library.string() + " is of another version of Headroom");
  if (found->device_count() == 0) return absent(found->why_absent());
  loaded = found;
  return *found;
}

const CudaFunctions& cuda_functions() {
  if (const CudaFunctions* found = loaded.load(std::memory_order_acquire)) return *found;
  return torch_cuda_is_loaded() ? load_cuda_from(neighbour()) : no_cuda::functions();
}

const CudaFunctions& load_cuda() {
  if (loaded.load() == nullptr && !torch_cuda_is_loaded()) {
    const std::string problem = load_torch_cuda();
    if (!problem.empty()) return absent(problem);
  }
  return load_cuda_from(neighbour());
}

}  // namespace headroom

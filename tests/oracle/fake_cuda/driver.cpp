// The driver's functions that PyTorch asks the runtime for by name. libcuda.so.1 is never opened.
#include <cstring>
#include <string_view>

#include "state.h"
#include "virtual_memory.h"

namespace fake_cuda {
namespace {

CUresult device_get(CUdevice* device, int number) {
  fake_cuda::device(number);
  *device = number;
  return CUDA_SUCCESS;
}

// A card that maps memory and can do nothing else worth asking for.
CUresult device_attribute(int* value, CUdevice_attribute attribute, CUdevice) {
  *value = attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult error_string(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_OUT_OF_MEMORY   ? "out of memory"
          : error == CUDA_ERROR_NOT_SUPPORTED ? "operation not supported"
                                              : "an error of the fake CUDA driver";
  return CUDA_SUCCESS;
}

CUresult current_context(CUcontext* context) {
  static int there_is_one;
  *context = reinterpret_cast<CUcontext>(&there_is_one);
  return CUDA_SUCCESS;
}

// For every other name; on x86-64 a function may be called with arguments it does not look at.
CUresult not_supported() {
  return CUDA_ERROR_NOT_SUPPORTED;
}

struct Entry {
  std::string_view name;
  void* function;
};

template <typename Function>
void* pointer(Function* function) {
  return reinterpret_cast<void*>(function);
}

const Entry kEntries[] = {
    {"cuDeviceGet", pointer(device_get)},
    {"cuDeviceGetAttribute", pointer(device_attribute)},
    {"cuGetErrorString", pointer(error_string)},
    {"cuCtxGetCurrent", pointer(current_context)},
    {"cuMemAddressReserve", pointer(address_reserve)},
    {"cuMemAddressFree", pointer(address_free)},
    {"cuMemCreate", pointer(create)},
    {"cuMemRelease", pointer(release)},
    {"cuMemMap", pointer(map)},
    {"cuMemUnmap", pointer(unmap)},
    {"cuMemSetAccess", pointer(set_access)},
    {"cuMemGetAllocationGranularity", pointer(granularity)},
};

}  // namespace
}  // namespace fake_cuda

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function,
                                                        unsigned int, unsigned long long,
                                                        cudaDriverEntryPointQueryResult* result) {
  *function = fake_cuda::pointer(fake_cuda::not_supported);
  for (const fake_cuda::Entry& entry : fake_cuda::kEntries)
    if (entry.name == name) *function = entry.function;
  if (result != nullptr) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

// The driver's functions for virtual memory, under names of our own: PyTorch asks for them by name
// (driver.cpp) and never links them.
#pragma once

#include <cuda.h>

#include <cstddef>

namespace fake_cuda {

CUresult address_reserve(CUdeviceptr* pointer, std::size_t size, std::size_t alignment,
                         CUdeviceptr wish, unsigned long long flags);
CUresult address_free(CUdeviceptr begin, std::size_t size);
CUresult create(CUmemGenericAllocationHandle* handle, std::size_t size,
                const CUmemAllocationProp* properties, unsigned long long flags);
CUresult release(CUmemGenericAllocationHandle handle);
CUresult map(CUdeviceptr begin, std::size_t size, std::size_t offset,
             CUmemGenericAllocationHandle handle, unsigned long long flags);
CUresult unmap(CUdeviceptr begin, std::size_t size);
CUresult set_access(CUdeviceptr begin, std::size_t size, const CUmemAccessDesc* descriptions,
                    std::size_t count);
CUresult granularity(std::size_t* bytes, const CUmemAllocationProp* properties,
                     CUmemAllocationGranularity_flags option);

}  // namespace fake_cuda

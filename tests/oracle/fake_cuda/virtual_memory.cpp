// The driver's virtual memory: ranges of addresses, pieces of memory, and which piece is mapped
// where. Memory counts against the device from cuMemCreate until it is both released and unmapped.
#include "virtual_memory.h"

#include <iterator>
#include <map>
#include <string>
#include <unordered_map>

#include "address_space.h"
#include "state.h"

namespace fake_cuda {
namespace {

constexpr std::size_t kGranularity = 2 << 20;

struct Memory {
  std::uint64_t size = 0;
  int device = 0;
  bool released = false;
  int times_mapped = 0;
};

struct Mapping {
  std::uint64_t size = 0;
  CUmemGenericAllocationHandle memory = 0;
};

AddressSpace space(std::uint64_t{1} << 62, ~std::uint64_t{0});
std::unordered_map<CUmemGenericAllocationHandle, Memory> memories;
std::map<std::uint64_t, Mapping> mappings;  // by address
CUmemGenericAllocationHandle last_memory = 0;

std::string text(std::uint64_t begin, std::uint64_t size) {
  return std::to_string(size) + " bytes at " + std::to_string(begin);
}

Memory& memory(CUmemGenericAllocationHandle handle, const char* function) {
  const auto found = memories.find(handle);
  if (found == memories.end())
    fail(std::string(function) + " of memory that does not exist: " + std::to_string(handle));
  return found->second;
}

// Memory that is no longer reachable returns to the device.
void drop_if_unused(CUmemGenericAllocationHandle handle) {
  const Memory& left = memories.at(handle);
  if (!left.released || left.times_mapped > 0) return;
  device(left.device).give_back(left.size);
  memories.erase(handle);
}

bool something_is_mapped(std::uint64_t begin, std::uint64_t end) {
  auto at = mappings.lower_bound(begin);
  if (at != mappings.end() && at->first < end) return true;
  if (at == mappings.begin()) return false;
  --at;
  return at->first + at->second.size > begin;
}

void expect_inside_a_range(const char* function, std::uint64_t begin, std::uint64_t size) {
  const std::optional<Piece> range = space.at(begin);
  if (!range || size > range->begin + range->size - begin)
    fail(std::string(function) + ": " + text(begin, size) + " are not inside one reserved range");
}

// Ends the process unless whole mappings cover exactly these addresses. Answers the end of them.
auto expect_mapped(const char* function, std::uint64_t begin, std::uint64_t size) {
  auto at = mappings.find(begin);
  std::uint64_t covered = 0;
  while (at != mappings.end() && at->first == begin + covered && covered < size) {
    covered += at->second.size;
    ++at;
  }
  if (covered != size)
    fail(std::string(function) + ": " + text(begin, size) + " are not exactly what is mapped");
  return at;
}

}  // namespace

void reset_virtual_memory() {
  space.reset();
  memories.clear();
  mappings.clear();
  last_memory = 0;
}

std::optional<Piece> range_at(std::uint64_t address) {
  return space.at(address);
}

CUresult address_reserve(CUdeviceptr* pointer, std::size_t size, std::size_t, CUdeviceptr,
                         unsigned long long) {
  if (size == 0 || size % kGranularity != 0)
    fail("cuMemAddressReserve of " + std::to_string(size) + " bytes, not a multiple of 2 MiB");
  *pointer = space.take(size, Addresses::ascending).begin;
  return CUDA_SUCCESS;
}

CUresult address_free(CUdeviceptr begin, std::size_t size) {
  if (something_is_mapped(begin, begin + size))
    fail("cuMemAddressFree of " + text(begin, size) + " while something is mapped there");
  const std::optional<Piece> range = space.give_back(begin);
  if (!range || range->size != size)
    fail("cuMemAddressFree of " + text(begin, size) + ", which is not one reserved range");
  return CUDA_SUCCESS;
}

CUresult create(CUmemGenericAllocationHandle* handle, std::size_t size,
                const CUmemAllocationProp* properties, unsigned long long) {
  const int number = properties->location.id;
  if (size == 0 || size % kGranularity != 0)
    fail("cuMemCreate of " + std::to_string(size) + " bytes, not a multiple of 2 MiB");
  if (!device(number).take(size)) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = ++last_memory;
  memories[*handle] = {size, number, false, 0};
  return CUDA_SUCCESS;
}

CUresult release(CUmemGenericAllocationHandle handle) {
  Memory& released = memory(handle, "cuMemRelease");
  if (released.released) fail("cuMemRelease of memory that was released before");
  released.released = true;
  drop_if_unused(handle);
  return CUDA_SUCCESS;
}

CUresult map(CUdeviceptr begin, std::size_t size, std::size_t offset,
             CUmemGenericAllocationHandle handle, unsigned long long) {
  Memory& mapped = memory(handle, "cuMemMap");
  if (mapped.released) fail("cuMemMap of memory that was released before");
  if (offset != 0 || size != mapped.size) fail("cuMemMap of a part of a piece of memory");
  expect_inside_a_range("cuMemMap", begin, size);
  if (something_is_mapped(begin, begin + size))
    fail("cuMemMap: at " + text(begin, size) + " something is mapped already");
  mappings[begin] = {size, handle};
  ++mapped.times_mapped;
  return CUDA_SUCCESS;
}

CUresult unmap(CUdeviceptr begin, std::size_t size) {
  const auto end = expect_mapped("cuMemUnmap", begin, size);
  const auto first = mappings.find(begin);
  for (auto at = first; at != end; ++at) {
    --memories.at(at->second.memory).times_mapped;
    drop_if_unused(at->second.memory);
  }
  mappings.erase(first, end);
  return CUDA_SUCCESS;
}

CUresult set_access(CUdeviceptr begin, std::size_t size, const CUmemAccessDesc*, std::size_t) {
  expect_mapped("cuMemSetAccess", begin, size);
  return CUDA_SUCCESS;
}

CUresult granularity(std::size_t* bytes, const CUmemAllocationProp*,
                     CUmemAllocationGranularity_flags) {
  *bytes = kGranularity;
  return CUDA_SUCCESS;
}

}  // namespace fake_cuda

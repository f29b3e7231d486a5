// cudaMalloc and cudaFree: exact sizes against the capacity of the device.
#include <bit>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "address_space.h"
#include "state.h"

namespace fake_cuda {
namespace {

AddressSpace space(std::uint64_t{1} << 32, std::uint64_t{1} << 62);
std::unordered_map<std::uint64_t, int> device_of;  // by where the piece begins

}  // namespace

void reset_memory() {
  space.reset();
  device_of.clear();
}

std::optional<Piece> malloc_at(std::uint64_t address) {
  return space.at(address);
}

}  // namespace fake_cuda

extern "C" {

cudaError_t cudaMalloc(void** pointer, std::size_t size) {
  using namespace fake_cuda;
  if (size == 0) fail("cudaMalloc of 0 bytes: PyTorch never asks for that");
  if (!device(current_device()).take(size)) return answer(cudaErrorMemoryAllocation);
  const Piece piece = space.take(size, machine().addresses);
  device_of[piece.begin] = current_device();
  *pointer = std::bit_cast<void*>(piece.begin);
  return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  using namespace fake_cuda;
  if (pointer == nullptr) return cudaSuccess;
  const auto piece = space.give_back(reinterpret_cast<std::uint64_t>(pointer));
  if (!piece)
    fail("cudaFree of " + std::to_string(reinterpret_cast<std::uint64_t>(pointer)) +
         ", which cudaMalloc never gave or which was freed before");
  device(device_of[piece->begin]).give_back(piece->size);
  device_of.erase(piece->begin);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const fake_cuda::Device& device = fake_cuda::device(fake_cuda::current_device());
  *free = device.capacity - device.used;
  *total = device.capacity;
  return cudaSuccess;
}

}  // extern "C"

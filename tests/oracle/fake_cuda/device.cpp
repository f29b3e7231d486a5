// The machine: its devices, the last error, and what CUDA tells about itself.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "state.h"

namespace fake_cuda {
namespace {

Machine the_machine;
std::vector<Device> devices(1, Device{the_machine.capacity});
int current = 0;
cudaError_t last_error = cudaSuccess;
std::uint64_t births = 0;

}  // namespace

void fail(const std::string& sentence) {
  std::fprintf(stderr, "fake_cuda: %s\n", sentence.c_str());
  std::abort();
}

void start(const Machine& machine) {
  the_machine = machine;
  devices.assign(static_cast<std::size_t>(machine.devices), Device{machine.capacity});
  current = 0;
  last_error = cudaSuccess;
  births = 0;
  reset_memory();
  reset_virtual_memory();
  reset_events();
}

const Machine& machine() {
  return the_machine;
}

Device& device(int number) {
  if (number < 0 || number >= the_machine.devices)
    fail("there is no device " + std::to_string(number));
  return devices[static_cast<std::size_t>(number)];
}

int current_device() {
  return current;
}

cudaError_t answer(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

std::uint64_t next_birth() {
  return births++;
}

std::optional<Piece> piece_at(std::uint64_t address) {
  const std::optional<Piece> piece = malloc_at(address);
  return piece ? piece : range_at(address);
}

}  // namespace fake_cuda

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = fake_cuda::machine().devices;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* number) {
  *number = fake_cuda::current;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int number) {
  fake_cuda::device(number);
  fake_cuda::current = number;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int number) {
  std::memset(properties, 0, sizeof *properties);
  std::snprintf(properties->name, sizeof properties->name, "Fake CUDA device");
  properties->totalGlobalMem = fake_cuda::device(number).capacity;
  properties->major = 9;
  properties->multiProcessorCount = 1;
  properties->warpSize = 32;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  return std::exchange(fake_cuda::last_error, cudaSuccess);
}

const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaSuccess ? "cudaSuccess" : "an error of the fake CUDA runtime";
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorNotSupported:
      return "operation not supported";
    default:
      return "an error of the fake CUDA runtime";
  }
}

}  // extern "C"

// State that the parts of the fake share. Each part keeps its own tables to itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fake_cuda.h"

namespace fake_cuda {

// Ends the process: the caller broke a rule of the driver, or called a function that is missing
// here.
[[noreturn]] void fail(const std::string& sentence);

struct Device {
  std::uint64_t capacity = 0;
  std::uint64_t used = 0;

  // False: not enough is left.
  bool take(std::uint64_t size) {
    if (size > capacity - used) return false;
    used += size;
    return true;
  }
  void give_back(std::uint64_t size) { used -= size; }
};

const Machine& machine();
// Ends the process for a device that does not exist.
Device& device(int number);
int current_device();

// Remembers an error for cudaGetLastError and answers it.
cudaError_t answer(cudaError_t error);

// ---- Told by one part to another ----

void reset_memory();
void reset_virtual_memory();
void reset_events();
std::optional<Piece> malloc_at(std::uint64_t address);
std::optional<Piece> range_at(std::uint64_t address);
std::uint64_t next_birth();

}  // namespace fake_cuda

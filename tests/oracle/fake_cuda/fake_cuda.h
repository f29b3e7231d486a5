// A CUDA runtime (and the part of the driver that maps memory) without a card: libcudart.so.13 with
// PyTorch's allocator above it and plain bookkeeping below. Nothing is ever stored at an address.
//
// It is strict where a driver would be: a pointer it never gave, a page mapped twice, a range given
// back while something is mapped in it end the process with a sentence on stderr. A program that
// links it first has it, because PyTorch's libraries look for a library of this name that is loaded
// already.
//
// This header is for the tests: what the machine is like, and what was done to it. One thread.
//
//   fake_cuda::start({.capacity = 24ull << 30, .events = fake_cuda::Events::when_told});
//   ... PyTorch's allocator at work ...
//   fake_cuda::complete_events(stream);
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace fake_cuda {

// When an event is complete. A wait for it or its stream completes it in any case.
enum class Events { when_recorded, when_told };

// Which address the next piece of cudaMalloc has. Reserved ranges lie above them, always ascending.
enum class Addresses {
  ascending,   // above all that were ever given
  descending,  // below all that were ever given
  lowest,      // in the lowest gap that is large enough
};

struct Machine {
  int devices = 1;
  std::uint64_t capacity = std::uint64_t{24} << 30;  // of each device, to the byte
  Events events = Events::when_recorded;
  Addresses addresses = Addresses::ascending;
};

// Once, before the first call of CUDA.
void start(const Machine& machine);

// ---- Streams and events ----

// The handle of stream n; they ascend with n, and 0 is the default stream.
cudaStream_t stream_handle(std::uint32_t number);
// The other way round. Only for handles of stream_handle().
std::uint32_t stream_number(const void* handle);

// Completes all recorded events: of this stream, of all streams.
void complete_events(cudaStream_t stream);
void complete_all_events();

// Events that the allocator queried since the last question. Their order is that of hash tables,
// and some of the allocator's figures depend on it.
struct Noticed {
  std::size_t completed = 0;  // events it found complete or waited for
  std::size_t streams = 0;    // on how many streams those were
  std::size_t pending = 0;    // events recorded and not yet seen complete, now
};
Noticed take_noticed();

// ---- Memory ----

// The range of an address: one cudaMalloc or one reserved range. `birth` counts them all.
struct Piece {
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
  std::uint64_t birth = 0;
};
std::optional<Piece> piece_at(std::uint64_t address);

}  // namespace fake_cuda

// What a card does before it refuses a request for good: it asks those who can free memory, and
// makes the request again. memory::Spill is one of them. Cards of sim and of CUDA ask; a CPU does
// not.
//
// Threads: the request's own thread asks, with no lock of an allocator held.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <memory>
#include <string>

#include "headroom/base/bytes.h"

namespace headroom::memory {

struct Refusal {
  c10::Device device;
  Bytes requested;
  std::uint32_t stream = 0;  // of the request, as in a snapshot's segments
  int times = 1;             // this request has been refused
};

class Rescuer {
 public:
  Rescuer() = default;
  virtual ~Rescuer() = default;
  Rescuer(const Rescuer&) = delete;
  Rescuer& operator=(const Rescuer&) = delete;

  // True if the request may be made again. Called until the request is served, or false.
  virtual bool frees_for(const Refusal& refusal) = 0;
  // A line for the error that the program gets.
  [[nodiscard]] virtual std::string why_not(const Refusal& refusal) = 0;
};

// While it lives, its rescuer is asked, before those of older scopes.
class RescueScope {
 public:
  explicit RescueScope(std::shared_ptr<Rescuer> rescuer);
  ~RescueScope();
  RescueScope(const RescueScope&) = delete;
  RescueScope& operator=(const RescueScope&) = delete;

 private:
  const std::shared_ptr<Rescuer> rescuer_;
};

// Requests of this thread are refused as if there were no rescuer: for memory that is only wanted.
class WithoutRescue {
 public:
  WithoutRescue();
  ~WithoutRescue();
  WithoutRescue(const WithoutRescue&) = delete;
  WithoutRescue& operator=(const WithoutRescue&) = delete;

 private:
  bool before_;
};

// From now on CUDA's cards ask, too. Does nothing where there are none, and may start CUDA.
void rescue_on_cuda();

// For a card's allocator: true if the request is to be made again. If not, the error has a line
// more.
[[nodiscard]] bool is_rescued(const Refusal& refusal, c10::Error& error);

}  // namespace headroom::memory

// PyTorch's own CUDA caching allocator, from libc10_cuda.so of the wheel, on the fake CUDA runtime
// (fake_cuda/): the same operations as headroom::allocator::Player, the same results in the same
// types, so that one can be laid beside the other.
//
// One object in the life of a process: the allocator's settings and the state of its card are of
// the process. Fork first to get another.
//
//   RealAllocator real({.capacity = 24_GiB, .settings = "expandable_segments:True"});
//   for (const Operation& operation : operations) real.play(operation);
//   compare(real.statistics(), player.card().statistics());
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/allocator/operation.h"

namespace headroom::oracle {

// The setup of both sides. `settings` is the text, because the real allocator parses it itself.
struct Setup {
  Bytes capacity = allocator::kUnlimited;
  std::string settings;
  std::optional<double> fraction;  // set_memory_fraction at the start
  allocator::EventRule events = allocator::EventRule::at_once;
  allocator::AddressPolicy addresses = allocator::AddressPolicy::ascending;
  bool asks = false;  // the real one asks for memory (cuda/loaded/asking_allocator.h), in vain
};

class RealAllocator {
 public:
  explicit RealAllocator(const Setup& setup, std::vector<std::string> settings_texts = {});

  // As Player::play. Throws UsageError where begin_pool is refused, else what the allocator throws.
  bool play(const allocator::Operation& operation);

  [[nodiscard]] allocator::Statistics statistics() const;
  [[nodiscard]] std::vector<allocator::SegmentInfo> snapshot() const;
  // 0: not allocated, or freed.
  [[nodiscard]] std::uint64_t address_of(std::uint32_t id) const;
  // The text of the last refusal, without the part about processes: NVML has that of this machine.
  [[nodiscard]] const std::string& out_of_memory_text() const { return out_of_memory_text_; }

 private:
  bool allocate(const allocator::Operation& operation);
  static void begin_pool(const allocator::Operation& operation);
  static void record_stream(void* pointer, allocator::StreamId stream);

  std::vector<std::string> settings_texts_;
  std::vector<void*> pointers_;  // by id
  std::string out_of_memory_text_;
};

}  // namespace headroom::oracle

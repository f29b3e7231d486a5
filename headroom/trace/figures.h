// What a card's memory looked like after each event, reckoned from the events of its trace alone.
//
//   EventFigures device;
//   device.see(event);
//   say(device.figures().allocated);
//
// A replay knows better: what rounding, splitting and caching really added.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "headroom/trace/event.h"

namespace headroom::trace {

// Nothing: not known.
struct Figures {
  std::optional<Bytes> allocated, reserved, active, requested;
};

// Of one device.
class EventFigures {
 public:
  void see(const Event& event);
  // allocated: what was requested, each block rounded up to 512 bytes, PyTorch's default; active:
  // with what is freed but not completed, once a completion was seen; reserved: once a segment was.
  [[nodiscard]] Figures figures() const;

 private:
  struct Block {
    Bytes requested;
    bool waiting = false;
  };
  void allocate(std::uint64_t address, Bytes bytes);
  void remove(std::uint64_t address);

  std::unordered_map<std::uint64_t, Block> blocks_;
  Bytes allocated_, requested_, active_, reserved_;
  bool has_completions_ = false, has_segments_ = false;
};

}  // namespace headroom::trace

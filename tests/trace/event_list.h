// A trace that a test writes down, event by event.
//
//   EventList trace({alloc(1, 30_MiB), free_requested(1), free_completed(1)});
//   const Replay result = replay(trace);
#pragma once

#include <utility>
#include <vector>

#include "headroom/trace/reader.h"

namespace headroom::testing {

class EventList final : public trace::Reader {
 public:
  explicit EventList(std::vector<trace::Event> events, trace::Format format = trace::Format::pickle)
      : events_(std::move(events)) {
    about_.format = format;
  }

  bool next(trace::Event& event) override {
    if (at_ == events_.size()) return false;
    event = events_[at_++];
    return true;
  }
  [[nodiscard]] const trace::About& about() const override { return about_; }
  [[nodiscard]] const trace::Names& names() const override { return names_; }
  [[nodiscard]] std::uint64_t position() const override { return at_; }
  [[nodiscard]] std::optional<std::uint64_t> size() const override { return events_.size(); }

  trace::Names& texts() { return names_; }
  void says(std::string settings) { about_.settings = std::move(settings); }

 private:
  std::vector<trace::Event> events_;
  std::size_t at_ = 0;
  trace::About about_;
  trace::Names names_;
};

inline trace::Event event_of(trace::Kind kind, std::uint64_t address = 0, Bytes bytes = {},
                             std::uint32_t stream = 0) {
  trace::Event event;
  event.kind = kind;
  event.address = address;
  event.bytes = bytes;
  event.stream = stream;
  return event;
}
inline trace::Event alloc(std::uint64_t address, Bytes bytes, std::uint32_t stream = 0) {
  return event_of(trace::Kind::alloc, address, bytes, stream);
}
inline trace::Event free_requested(std::uint64_t address) {
  return event_of(trace::Kind::free_requested, address);
}
inline trace::Event free_completed(std::uint64_t address) {
  return event_of(trace::Kind::free_completed, address);
}
inline trace::Event on_device(std::uint16_t device, trace::Event event) {
  event.device = device;
  return event;
}

}  // namespace headroom::testing

// Events and traces that a test writes down.
//
//   const auto trace = trace_of({alloc(1, 30_MiB), free_requested(1), free_completed(1)});
//   const Replay result = replay(*trace);
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "headroom/trace/reader.h"

namespace headroom::trace::testing {

class VectorReader final : public Reader {
 public:
  VectorReader(std::vector<Event> events, Names names, About about)
      : events_(std::move(events)), names_(std::move(names)), about_(std::move(about)) {}

  bool next(Event& event) override {
    if (at_ == events_.size()) return false;
    event = events_[at_++];
    return true;
  }
  [[nodiscard]] const About& about() const override { return about_; }
  [[nodiscard]] const Names& names() const override { return names_; }
  [[nodiscard]] std::uint64_t position() const override { return at_; }
  [[nodiscard]] std::optional<std::uint64_t> size() const override { return events_.size(); }

 private:
  std::vector<Event> events_;
  Names names_;
  About about_;
  std::size_t at_ = 0;
};

inline std::unique_ptr<Reader> read_memory(std::vector<Event> events, Names names,
                                           About about = {}) {
  return std::make_unique<VectorReader>(std::move(events), std::move(names), std::move(about));
}

// As if read from a history of PyTorch, if not said otherwise.
inline std::unique_ptr<Reader> trace_of(std::vector<Event> events,
                                        About about = {.format = Format::pickle},
                                        Names names = {}) {
  return read_memory(std::move(events), std::move(names), std::move(about));
}

inline Event event_of(Kind kind, std::uint64_t address = 0, Bytes bytes = {},
                      std::uint32_t stream = 0) {
  Event event;
  event.kind = kind;
  event.address = address;
  event.bytes = bytes;
  event.stream = stream;
  return event;
}
inline Event alloc(std::uint64_t address, Bytes bytes, std::uint32_t stream = 0) {
  return event_of(Kind::alloc, address, bytes, stream);
}
inline Event free_requested(std::uint64_t address) {
  return event_of(Kind::free_requested, address);
}
inline Event free_completed(std::uint64_t address) {
  return event_of(Kind::free_completed, address);
}
inline Event on_device(std::uint16_t device, Event event) {
  event.device = device;
  return event;
}
inline Event at_us(std::int64_t time_us, Event event) {
  event.time_ns = time_us * 1000;
  return event;
}

}  // namespace headroom::trace::testing

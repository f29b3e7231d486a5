#include "headroom/trace/memory_reader.h"

#include <functional>
#include <utility>

namespace headroom::trace {
namespace {

// Reads the events [begin, end) that `event_at` has.
class MemoryReader final : public Reader {
 public:
  MemoryReader(std::function<const Event&(std::uint64_t)> event_at, std::uint64_t begin,
               std::uint64_t end, const Names& names, About about)
      : event_at_(std::move(event_at)),
        begin_(begin),
        end_(end),
        at_(begin),
        names_(names),
        about_(std::move(about)) {}

  bool next(Event& event) override {
    if (at_ == end_) return false;
    event = event_at_(at_++);
    return true;
  }
  [[nodiscard]] const About& about() const override { return about_; }
  [[nodiscard]] const Names& names() const override { return names_; }
  [[nodiscard]] std::uint64_t position() const override { return at_ - begin_; }
  [[nodiscard]] std::optional<std::uint64_t> size() const override { return end_ - begin_; }

 private:
  std::function<const Event&(std::uint64_t)> event_at_;
  std::uint64_t begin_, end_, at_;
  const Names& names_;
  About about_;
};

}  // namespace

std::unique_ptr<Reader> read_memory(const Recorder& recorder, About about) {
  const auto event_at = [&recorder](std::uint64_t number) -> const Event& {
    return recorder.event(number);
  };
  return std::make_unique<MemoryReader>(event_at, recorder.dropped(), recorder.recorded(),
                                        recorder.names(), std::move(about));
}

std::unique_ptr<Reader> read_events(const std::vector<Event>& events, const Names& names,
                                    About about) {
  const auto event_at = [&events](std::uint64_t number) -> const Event& { return events[number]; };
  return std::make_unique<MemoryReader>(event_at, 0, events.size(), names, std::move(about));
}

}  // namespace headroom::trace

// Turns the events of a trace into requests to the allocator: the step between a file and a replay.
// It reads one event at a time and keeps only live allocations in memory.
//
//   const auto trace = open_trace("run.hrtrace");
//   Operations operations(*trace);
//   for (Batch batch; operations.next(batch, 16384); batch.clear())
//     for (const allocator::Operation& operation : batch.operations) player.play(operation);
//
// There are two kinds of traces. A *list of requests* (the plain format) contains a program's
// requests and must be consistent: an id allocated twice or freed twice is an InputError with the
// number of the event. A *history* (PyTorch's, or a recording of it) contains what happened: when a
// free was completed, but not the streams that it waited for. In a history
//   - a free that completes at once is a plain free; a free that completes later keeps its block
//     until then through an invented stream (so the card must use EventRule::when_told);
//   - record_stream and complete_events are ignored: the completions are more exact;
//   - a free of memory allocated before the recording began is ignored and counted;
//   - an allocation at an address that is still live frees the old one first: its free was missed.
// A Headroom trace is a history if its beginning, up to shortly after the first free, contains a
// completed free.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "headroom/allocator/operation.h"
#include "headroom/trace/reader.h"

namespace headroom::trace {

struct OperationsOptions {
  std::string name = "the trace";  // for messages
  // Only events of this device; std::nullopt: those of the first device that appears.
  std::optional<std::uint16_t> device = {};
  // Also keep the events, with an Operation::Kind::nothing for each event without a request.
  bool keep_events = false;
};

struct Batch {
  std::vector<allocator::Operation> operations;
  std::vector<std::uint64_t> numbers;  // for each operation: the number of its event, from 0
  std::vector<Event> events;           // for each operation: its event, if events are kept

  void clear();
};

// An out-of-memory error of the recorded program.
struct RecordedRefusal {
  std::uint64_t event = 0;
  Bytes asked;
  Bytes free;  // on the card at that time
};

// Counts and facts collected while reading.
struct Noticed {
  std::uint64_t events = 0;             // read so far, of all devices
  std::vector<std::uint16_t> devices;   // by first appearance
  std::optional<std::uint16_t> device;  // the device whose events are used
  std::uint64_t of_other_devices = 0;   // events
  std::uint64_t unknown_frees = 0;      // of memory allocated before the recording began
  std::uint64_t missing_frees = 0;      // an address was allocated again without a free
  std::uint64_t recorded_refusals = 0;
  std::optional<RecordedRefusal> first_recorded_refusal;

  // Notes the device of an event; the first one becomes the chosen one if none is. True if it is
  // the chosen one.
  bool takes(std::uint16_t of_event);
};

class Operations {
 public:
  // The reader must outlive this object.
  explicit Operations(Reader& trace, OperationsOptions options = {});

  // Appends the next operations: at least one, and only slightly more than `count`. False: the end.
  bool next(Batch& batch, std::size_t count);

  // See above. Known after construction.
  [[nodiscard]] bool is_history() const { return is_history_; }
  // The texts that Operation::Kind::change_settings refers to by index. Grows.
  [[nodiscard]] const std::vector<std::string>& settings_texts() const { return texts_; }
  // The file's number for an operation's stream; empty for an invented stream.
  [[nodiscard]] std::optional<std::uint32_t> stream_in_file(allocator::StreamId stream) const;
  [[nodiscard]] const Noticed& noticed() const { return noticed_; }

 private:
  struct Numbered {
    Event event;
    std::uint64_t number = 0;
  };
  // An allocation of 0 bytes has no id: PyTorch does not ask the allocator for it.
  using Id = std::optional<std::uint32_t>;

  void look_ahead();
  bool read(Numbered& next);
  bool take(Numbered& next);
  const Event* peek();

  void convert(const Numbered& next);
  void allocate(const Event& event);
  void free(const Event& event);
  void complete(const Event& event);
  void record_stream(const Event& event);
  void note_refusal(const Numbered& next);
  void change_settings(const Event& event);
  void change_pool(const Event& event);

  void add(const allocator::Operation& operation);
  [[nodiscard]] std::uint32_t new_id();
  allocator::StreamId stream_of(std::uint32_t in_file);
  allocator::StreamId made_up_stream();
  [[noreturn]] void mistake(const char* expected, const Event& event) const;

  Reader& trace_;
  OperationsOptions options_;
  bool is_history_ = false;
  bool ended_ = false;
  Noticed noticed_;
  std::deque<Numbered> ahead_;  // read ahead, not yet taken

  std::unordered_map<std::uint64_t, Id> live_;  // by address
  // By address: freed, not yet completed.
  std::unordered_map<std::uint64_t, allocator::StreamId> waiting_;
  std::vector<std::uint32_t> free_ids_;
  std::uint32_t ids_ = 0;
  std::vector<std::optional<allocator::StreamId>> streams_;  // by the file's number
  std::vector<std::optional<std::uint32_t>> in_file_;        // the inverse of streams_
  std::vector<allocator::StreamId> idle_streams_;            // invented streams that are unused now
  std::vector<std::string> texts_;
  std::unordered_map<Name, std::uint32_t> text_of_name_;
  int open_pools_ = 0;

  // The target for the current event's operations.
  Batch* batch_ = nullptr;
  const Numbered* at_ = nullptr;
};

}  // namespace headroom::trace

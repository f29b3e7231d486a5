// What the events of a trace asked of the allocator: the step between a file and a replay. One
// event after the other is read, and only the allocations that live are kept in memory.
//
//   Operations operations(*open_trace("run.hrtrace"));
//   for (Batch batch; operations.next(batch, 16384); batch.clear())
//     for (const allocator::Operation& operation : batch.operations) player.play(operation);
//
// Two kinds of traces are told apart. A *list of requests* (the plain form) says what a program
// asked for, and it is taken at its word: an id that is allocated twice or freed twice is a mistake
// of the file, an InputError with the number of the event. A *history* (PyTorch's, or a recording
// of it) says what happened: that a free was completed, but not which streams it waited for. There
//   - a free that was completed at once is a free; one completed later keeps its block until then
//     by a stream made up for it (so the card must run with EventRule::when_told);
//   - its record_stream and complete_events are left out: the completions tell the same, better;
//   - a free of something that was allocated before the recording began is left out and counted;
//   - an allocation at an address that is still taken, as its free was missed, frees it first.
// A Headroom trace is a history if a free was completed among the events around its first frees.
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
  // Only what happened on this device; nothing: on the first that appears.
  std::optional<std::uint16_t> device = {};
  // Also an Operation::Kind::nothing for each event that asks nothing, and the events themselves.
  bool keep_events = false;
};

struct Batch {
  std::vector<allocator::Operation> operations;
  std::vector<std::uint64_t> numbers;  // for each operation: which event, from 0, it comes from
  std::vector<Event> events;           // the same event itself, if these are kept

  void clear();
};

// An out-of-memory that the recorded program met.
struct RecordedRefusal {
  std::uint64_t event = 0;
  Bytes asked;
  Bytes free;  // on the card, then
};

// What was noticed on the way.
struct Noticed {
  std::uint64_t events = 0;             // read so far, of all devices
  std::vector<std::uint16_t> devices;   // in the order of their appearance
  std::optional<std::uint16_t> device;  // the one whose events are taken
  std::uint64_t of_other_devices = 0;   // events
  std::uint64_t late_frees = 0;         // completed when other things had happened
  std::uint64_t unknown_frees = 0;      // of what was allocated before the recording began
  std::uint64_t missing_frees = 0;      // an address was given again without having been freed
  std::uint64_t recorded_refusals = 0;
  std::optional<RecordedRefusal> first_recorded_refusal;
};

class Operations {
 public:
  // The reader must live as long.
  explicit Operations(Reader& trace, OperationsOptions options = {});

  // Appends the next operations, at least one and not many more than `count`. False: there is none.
  bool next(Batch& batch, std::size_t count);

  // See above. Known from the start.
  [[nodiscard]] bool is_history() const { return is_history_; }
  // What Operation::Kind::change_settings has the index into. Grows.
  [[nodiscard]] const std::vector<std::string>& settings_texts() const { return texts_; }
  // The file's number of a stream of an operation; nothing: it is one that was made up.
  [[nodiscard]] std::optional<std::uint32_t> stream_in_file(allocator::StreamId stream) const;
  [[nodiscard]] const Noticed& noticed() const { return noticed_; }

 private:
  struct Numbered {
    Event event;
    std::uint64_t number = 0;
  };
  // An allocation without an id has no bytes: PyTorch does not ask the allocator for it.
  using Id = std::optional<std::uint32_t>;

  void look_ahead();
  bool read(Numbered& next);
  bool take(Numbered& next);
  const Event* peek();
  bool is_taken(const Event& event);

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
  std::deque<Numbered> ahead_;  // read, not yet taken

  std::unordered_map<std::uint64_t, Id> live_;  // by address
  // By address: freed, not complete.
  std::unordered_map<std::uint64_t, allocator::StreamId> waiting_;
  std::vector<std::uint32_t> free_ids_;
  std::uint32_t ids_ = 0;
  std::vector<std::optional<allocator::StreamId>> streams_;  // by the file's number
  std::vector<std::optional<std::uint32_t>> in_file_;        // the other way round
  std::vector<allocator::StreamId> idle_streams_;            // of those made up
  std::vector<std::string> texts_;
  std::unordered_map<Name, std::uint32_t> text_of_name_;
  int open_pools_ = 0;

  // Where the event at work goes.
  Batch* batch_ = nullptr;
  const Numbered* at_ = nullptr;
};

}  // namespace headroom::trace

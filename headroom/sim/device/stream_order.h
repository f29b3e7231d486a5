// Finds missing waits between streams. Work on a simulated card is done at once, so a program that
// forgets a wait gets right results here and wrong ones on CUDA; with
// SimulationOptions::check_streams an operator throws instead. A box has one StreamOrder.
//
// Every stream has a vector clock: for each stream of the box, how many of its operators are known
// to have ended before the next operator starts here. An event carries the clock of its record; a
// wait joins it. Each block of memory keeps its last write and the reads since. Two uses of which
// one writes need an order:
//
//   StreamOrder order(1);
//   order.launch({0, 1}, "aten::add.Tensor", {{&uses, true}});
//   order.launch({0, 2}, "aten::mul.Tensor", {{&uses, false}});  // throws: names both
//   order.wait({0, 2}, order.record({0, 1}));                    // from here on it would not
//
// Work that one thread of the host has waited for counts as ended for all: a program's threads
// order their own work by other means. Work that is only handed from thread to thread stays
// unordered, as on CUDA.
// Threads: call everything from any thread; a StreamOrder guards the MemoryUses given to it.
#pragma once

#include <c10/core/Stream.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::sim::detail {

struct StreamOfCard {
  int card = 0;
  c10::StreamId id = 0;
  bool operator==(const StreamOfCard&) const = default;
};

// By the box's number of a stream; a stream beyond the end has 0.
using StreamClock = std::vector<std::uint64_t>;

struct StreamUse {
  std::uint32_t stream = 0;         // the box's number
  std::uint64_t time = 0;           // by that stream's own clock; 0: no use
  std::string_view operation = {};  // lives as long as the process
};
using StreamUses = c10::SmallVector<StreamUse, 1>;  // at most one for each stream

// The uses of one block of the allocator.
struct MemoryUses {
  StreamUse write;    // the last one
  StreamUses reads;   // since the write, the last of each stream
  StreamUses former;  // of freed blocks that had this memory before, until it is written
  c10::SmallVector<std::uint32_t, 1> recorded;  // streams given to record_stream
  StreamOfCard owner;                           // the stream that it was allocated on
  std::uint64_t begin = 0, end = 0;             // its addresses on the card; 0, 0: not followed
};

class StreamOrder {
 public:
  struct Touch {
    MemoryUses* uses;
    bool writes;
  };

  explicit StreamOrder(int cards) : left_(static_cast<std::size_t>(cards)) {}

  // ---- Operators ----

  // Throws libtorch::DeviceError if an earlier use is not ordered before this one. Returns the time
  // of the operator on its stream, for results().
  std::uint64_t launch(StreamOfCard stream, std::string_view operation,
                       std::span<const Touch> touched);
  // The operator wrote these, except those that it has touched already as arguments. Throws as
  // launch() does, for memory that other streams may still use.
  void results(StreamOfCard stream, std::string_view operation, std::uint64_t launched,
               std::span<MemoryUses* const> made);

  // ---- Waits ----

  [[nodiscard]] StreamClock record(StreamOfCard stream);
  void wait(StreamOfCard stream, const StreamClock& recorded);
  // The host waits: for an event, a stream, all streams of a card.
  void synchronize(const StreamClock& recorded);
  void synchronize(StreamOfCard stream) { synchronize(record(stream)); }
  void synchronize_card(int card);

  // ---- Memory ----

  void allocated(MemoryUses& uses, StreamOfCard stream, std::uint64_t address, std::size_t bytes);
  void record_stream(MemoryUses& uses, StreamOfCard stream);
  void freed(const MemoryUses& uses);

 private:
  struct Stream {
    StreamOfCard name;
    StreamClock seen;             // its own entry: its number of operators
    std::uint64_t host_seen = 0;  // the version of host_ that `seen` includes
  };
  // Uses of freed memory that no later owner has overwritten.
  struct Left {
    std::uint64_t end = 0;
    StreamUses uses;
  };

  std::uint32_t number_of(StreamOfCard stream);
  std::uint32_t up_to_date(StreamOfCard stream);
  void touch(MemoryUses& uses, bool writes, std::uint32_t by, std::string_view operation);
  [[nodiscard]] bool host_knows(const StreamUse& use) const;
  void host_joins(const StreamClock& clock);
  void forget_ended(int card);
  [[nodiscard]] std::string named(std::uint32_t stream) const;
  [[noreturn]] void refuse(const StreamUse& earlier, bool wrote, std::uint32_t by,
                           std::string_view operation) const;
  [[noreturn]] void refuse_reuse(const StreamUse& former, StreamOfCard owner, std::uint32_t by,
                                 std::string_view operation) const;

  std::mutex mutex_;  // guards all below, and the MemoryUses
  std::vector<Stream> streams_;
  StreamClock host_;
  std::uint64_t host_version_ = 0;                   // changes with host_
  std::vector<std::map<std::uint64_t, Left>> left_;  // by card, then by first address
};

}  // namespace headroom::sim::detail

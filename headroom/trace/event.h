// One event of GPU memory, and where in the model it happened. All readers return events and all
// writers take them; a field that a file does not have keeps its default.
//
// Texts (module paths, operators, lines, settings) are numbers into a `Names`, so that an event is
// a small value. Number 0 is the empty text.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

#include "headroom/base/bytes.h"

namespace headroom::trace {

enum class Kind : std::uint8_t {
  // Events of PyTorch's memory history, under PyTorch's names
  alloc,           // address, bytes as requested
  free_requested,  // address
  free_completed,  // address: the memory can be used again (other streams are done with it)
  segment_alloc,   // this and the next three: between allocator and driver
  segment_free,
  segment_map,
  segment_unmap,
  oom,   // bytes of the refused request; address: the bytes free on the card
  mark,  // text: a label that a user or program set to find the place again
  // Other requests to the allocator, so that a replay can repeat them
  record_stream,    // address; stream: the other stream that uses the block
  complete_events,  // stream, or kAllStreams
  empty_cache,
  reset_peaks,
  settings,    // text: as PYTORCH_CUDA_ALLOC_CONF
  begin_pool,  // address: the pool's number, also in the next two
  end_pool,
  release_pool,
};
inline constexpr int kKinds = 17;

enum class Category : std::uint8_t {
  unknown,
  parameter,
  buffer,
  input,
  gradient,
  optimizer,
  activation,
  temporary,
  workspace,
};
inline constexpr int kCategories = 9;

enum class Phase : std::uint8_t { unknown, init, forward, backward, optimizer, evaluation, data };
inline constexpr int kPhases = 7;

using Name = std::uint32_t;
inline constexpr std::uint32_t kAllStreams = ~std::uint32_t{0};

struct Event {
  std::int64_t time_ns = 0;   // since 1970, or since the start if the file says so
  std::uint64_t address = 0;  // or any number that identifies the allocation while it is live
  Bytes bytes;
  std::uint32_t stream = 0;  // numbered from 0 by first appearance; 0 is the default stream
  std::uint32_t step = 0;
  Name module = 0;     // "transformer.h.3.attn"
  Name operation = 0;  // "aten::mm"; for marks and settings, the text
  Name line = 0;       // of the program: "train.py:84"
  std::uint16_t device = 0;
  Kind kind = Kind::mark;
  Category category = Category::unknown;
  Phase phase = Phase::unknown;

  bool operator==(const Event&) const = default;
};

// True for kinds whose `operation` is a text, not an operator. They belong to no device.
constexpr bool has_text(Kind kind) {
  return kind == Kind::mark || kind == Kind::settings;
}

// "alloc", "free_requested", ...; "parameter", ...; "forward", ...
[[nodiscard]] std::string_view to_string(Kind kind);
[[nodiscard]] std::string_view to_string(Category category);
[[nodiscard]] std::string_view to_string(Phase phase);

// Texts by number and numbers by text. One owner, one thread.
class Names {
 public:
  Names();
  Names(const Names& other);
  Names& operator=(const Names& other);
  Names(Names&&) noexcept = default;
  Names& operator=(Names&&) noexcept = default;

  // Returns the number of this text, a new one if the text is new.
  Name number(std::string_view text);
  // Throws InternalError for an unknown number.
  [[nodiscard]] std::string_view text(Name name) const;
  [[nodiscard]] std::size_t size() const { return texts_.size(); }

 private:
  std::deque<std::string> texts_;  // a deque never moves its texts; the keys below point into them
  std::unordered_map<std::string_view, Name> numbers_;
};

}  // namespace headroom::trace

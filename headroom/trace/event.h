// One thing that happened to GPU memory, with where in the model it happened. All readers give
// these, all writers take them; what a file cannot say stays at its default.
//
// Texts (module paths, operators, settings) are numbers into a `Names`, so that an event is a small
// value; number 0 is the empty text.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

#include "headroom/base/bytes.h"

namespace headroom::trace {

enum class Kind : std::uint8_t {
  // What PyTorch's memory history tells, under its names
  alloc,           // address, bytes as requested
  free_requested,  // address
  free_completed,  // address: the memory can be used again (other streams are done with it)
  segment_alloc,   // from here to segment_unmap: between allocator and driver
  segment_free,
  segment_map,
  segment_unmap,
  oom,   // bytes as requested; address: what was free on the card
  mark,  // text: what a person or program wanted to find again
  // What else a program asks of the allocator, so that a replay does the same
  record_stream,    // address; stream: the other stream
  complete_events,  // stream, or kAllStreams
  empty_cache,
  reset_peaks,
  settings,    // text: as PYTORCH_CUDA_ALLOC_CONF
  begin_pool,  // address: the pool's number, as in the next two
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

enum class Phase : std::uint8_t { unknown, init, forward, backward, optimizer, evaluation };
inline constexpr int kPhases = 6;

using Name = std::uint32_t;
inline constexpr std::uint32_t kAllStreams = ~std::uint32_t{0};

struct Event {
  std::int64_t time_ns = 0;   // since 1970, or since the start where a file says so
  std::uint64_t address = 0;  // or any number that names the allocation while it lives
  Bytes bytes;
  std::uint32_t stream = 0;  // numbered from 0 in the order of appearance; 0 is the default stream
  std::uint32_t step = 0;
  Name module = 0;     // "transformer.h.3.attn"
  Name operation = 0;  // "aten::mm"; of marks and settings: the text
  std::uint16_t device = 0;
  Kind kind = Kind::mark;
  Category category = Category::unknown;
  Phase phase = Phase::unknown;

  bool operator==(const Event&) const = default;
};

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

  // The number of this text, a new one if it has none yet.
  Name number(std::string_view text);
  // Throws InternalError for a number that was never given.
  [[nodiscard]] std::string_view text(Name name) const;
  [[nodiscard]] std::size_t size() const { return texts_.size(); }

 private:
  std::deque<std::string> texts_;  // never moves a text: the keys below look into them
  std::unordered_map<std::string_view, Name> numbers_;
};

}  // namespace headroom::trace

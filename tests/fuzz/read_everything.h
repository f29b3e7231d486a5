// Reads bytes as whatever trace they are, to the end, looking at all that events name, and uses it
// as the commands do. Garbage may end in InputError and in nothing else.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "headroom/base/error.h"
#include "headroom/trace/detail/file_form.h"
#include "headroom/trace/detail/zstd_frame.h"
#include "headroom/trace/reader.h"
#include "headroom/trace/replay.h"
#include "headroom/trace/top.h"

namespace headroom::trace::fuzz {

// A few bytes of zstd may be 65536 equal events, many times; that is slow and shows nothing new.
inline constexpr int kMostEvents = 200'000;

// Checksums keep a fuzzer out of the parts of our own format. Bytes that begin with this one are
// the number of events (two bytes) and what is in a part; head and checksums are put around it.
inline constexpr char kPart = '\x01';

inline std::string part_around(std::string_view raw, std::string_view tag, std::uint32_t events) {
  detail::Compressor compressor(1);
  std::string frame;
  compressor.append_frame(frame, raw);
  return detail::to_bytes(
             detail::PartHeader{.tag = std::string(tag),
                                .stored_bytes = static_cast<std::uint32_t>(frame.size()),
                                .raw_bytes = static_cast<std::uint32_t>(raw.size()),
                                .events = events}) +
         frame;
}

inline std::string file_around(std::string_view bytes) {
  const auto low = static_cast<unsigned char>(bytes[1]),
             high = static_cast<unsigned char>(bytes[2]);
  return detail::to_bytes(detail::Prefix{}) + part_around("{}", detail::kHeadTag, 0) +
         part_around(bytes.substr(3), detail::kPartTag,
                     std::uint32_t{low} | std::uint32_t{high} << 8U);
}

// Returns the number of events before the end or the error.
inline int read_everything(std::string_view bytes) {
  std::string file;
  if (bytes.size() >= 3 && bytes[0] == kPart) bytes = file = file_around(bytes);
  int count = 0;
  try {
    const auto trace = open_trace(Input::memory("fuzzed", bytes));
    for (Event event; count < kMostEvents && trace->next(event); ++count) {
      static_cast<void>(trace->names().text(event.module));
      static_cast<void>(trace->names().text(event.operation));
      static_cast<void>(to_string(event.kind));
      static_cast<void>(to_string(event.category));
      static_cast<void>(to_string(event.phase));
    }
    if (trace->position() > bytes.size() || trace->cut_off() > bytes.size())
      throw InternalError("read more than there is");
  } catch (const InputError&) {
  }
  return count;
}

// The first events of a trace, so that few bytes cannot keep a fuzzer busy.
class FirstEvents final : public Reader {
 public:
  FirstEvents(std::string_view bytes, int most)
      : trace_(open_trace(Input::memory("fuzzed", bytes))), left_(most) {}

  bool next(Event& event) override { return left_-- > 0 && trace_->next(event); }
  [[nodiscard]] const About& about() const override { return trace_->about(); }
  [[nodiscard]] const Names& names() const override { return trace_->names(); }
  [[nodiscard]] std::uint64_t position() const override { return trace_->position(); }
  [[nodiscard]] std::optional<std::uint64_t> size() const override { return trace_->size(); }

 private:
  std::unique_ptr<Reader> trace_;
  int left_;
};

// Does what the commands do with a trace, because garbage that reads well is still garbage when it
// is added up and played. Returns the number of operations that were played before the end or the
// error.
inline std::uint64_t use_everything(std::string_view bytes) {
  constexpr int kMost = 20'000;
  std::string file;
  if (bytes.size() >= 3 && bytes[0] == kPart) bytes = file = file_around(bytes);
  try {
    FirstEvents to_look(bytes, kMost);
    static_cast<void>(shares(top_of(to_look), Grouping::module));
    FirstEvents to_play(bytes, kMost);
    return replay(to_play, {.setup = {.capacity = Bytes{std::int64_t{1} << 34}}}).card.operations;
  } catch (const InputError&) {
    return 0;
  }
}

}  // namespace headroom::trace::fuzz

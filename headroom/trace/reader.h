// Reading traces: one interface over all kinds of files. Readers hold a small window of the file,
// never all of it, so that a trace larger than memory can be read; the one exception is PyTorch's
// pickle, whose form demands it.
//
//   const auto trace = open_trace("run.hrtrace");
//   for (Event event; trace->next(event);) say(to_string(event.kind), event.bytes);
//
// A file that does not hold what it should ends in InputError with its name and the byte (text: the
// line) where that was noticed. A Headroom trace that just stops, because its writer was killed, is
// no error: it ends where the last whole part ended, and `cut_off` says so.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "headroom/trace/event.h"
#include "headroom/trace/input.h"

namespace headroom::trace {

enum class Format { headroom, plain, pickle };
[[nodiscard]] std::string_view to_string(Format format);

// What a file says about the whole.
struct About {
  Format format = Format::plain;
  std::string program;            // what wrote it or was recorded; "" if not said
  std::string settings;           // of the allocator at the start, as PYTORCH_CUDA_ALLOC_CONF
  std::optional<Bytes> capacity;  // of the card that was recorded
  bool times_are_known = false;
};

class Reader {
 public:
  virtual ~Reader() = default;
  // False: the end. After it, and after an exception, nothing more may be read.
  virtual bool next(Event& event) = 0;
  [[nodiscard]] virtual const About& about() const = 0;
  // Grows while events are read; numbers stay.
  [[nodiscard]] virtual const Names& names() const = 0;
  // Known after the end: how many bytes of an unfinished part were left out.
  [[nodiscard]] virtual std::uint64_t cut_off() const { return 0; }
  // How far it is, for progress: bytes of the file consumed, and in all (nothing: a pipe).
  [[nodiscard]] virtual std::uint64_t position() const = 0;
  [[nodiscard]] virtual std::optional<std::uint64_t> size() const = 0;
};

// Tells the format by the first bytes. "-" is standard input. Throws InputError when it cannot be
// opened or is none of the formats.
[[nodiscard]] std::unique_ptr<Reader> open_trace(const std::filesystem::path& path);
[[nodiscard]] std::unique_ptr<Reader> open_trace(Input input);

}  // namespace headroom::trace

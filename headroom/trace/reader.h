// Reading traces: one interface for all file formats. A reader keeps a small window of the file in
// memory, so that it can read a trace larger than memory. The exception is PyTorch's pickle, whose
// format must be read whole.
//
//   const auto trace = open_trace("run.hrtrace");
//   for (Event event; trace->next(event);) say(to_string(event.kind), event.bytes);
//
// A malformed file ends in InputError with the file's name and the byte (in text, the line) of the
// fault. A Headroom trace that ends early because its writer was killed is not an error: it ends
// after the last whole part, and `cut_off` is the number of bytes left out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headroom/trace/event.h"
#include "headroom/trace/input.h"

namespace headroom::trace {

enum class Format { headroom, plain, pickle };
[[nodiscard]] std::string_view to_string(Format format);

// Facts about the whole trace.
struct About {
  Format format = Format::plain;
  std::string program;            // that wrote the file, or was recorded; "" if unknown
  std::string settings;           // of the allocator at the start, as PYTORCH_CUDA_ALLOC_CONF
  std::optional<Bytes> capacity;  // of the recorded card
  // False if the run had no limit, and `capacity` is what it should have fitted into.
  bool is_within_capacity = true;
  std::string torch;  // the PyTorch whose allocator is recorded: "2.15"; "" if unknown
  bool times_are_known = false;
  // The program that ran, as names and values for a person: ("model", "gpt2"), ("batch", "4").
  std::vector<std::pair<std::string, std::string>> facts = {};
};

class Reader {
 public:
  virtual ~Reader() = default;
  // Returns false at the end. After that, and after an exception, read no further.
  virtual bool next(Event& event) = 0;
  [[nodiscard]] virtual const About& about() const = 0;
  // Grows while events are read; numbers never change.
  [[nodiscard]] virtual const Names& names() const = 0;
  // Valid after the end: the bytes of an unfinished part that were left out.
  [[nodiscard]] virtual std::uint64_t cut_off() const { return 0; }
  // Progress: the bytes of the file read so far, and its size (empty for a pipe).
  [[nodiscard]] virtual std::uint64_t position() const = 0;
  [[nodiscard]] virtual std::optional<std::uint64_t> size() const = 0;
};

// Detects the format from the first bytes. "-" is standard input. Throws InputError if the file
// cannot be opened or has none of the formats.
[[nodiscard]] std::unique_ptr<Reader> open_trace(const std::filesystem::path& path);
[[nodiscard]] std::unique_ptr<Reader> open_trace(Input input);

}  // namespace headroom::trace

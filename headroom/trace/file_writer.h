// Writing a Headroom trace (docs/formats/trace.md): compact, and of use at any moment: what was
// flushed can be read while the rest is still being written, and after the writer was killed.
//
//   TraceWriter writer("run.hrtrace", {.program = "train"}, names);
//   writer.append(event);    // names in it are numbers of `names`
//   writer.close();          // or leave it to the destructor, which tells no errors
//
// One thread at a time; `names` too may only grow between calls.
#pragma once

#include <filesystem>
#include <memory>

#include "headroom/trace/reader.h"

namespace headroom::trace {

struct TraceWriterOptions {
  // Larger parts are smaller on the disk; a kill loses what is not yet in a part. At most 65536.
  std::uint32_t events_per_part = 65'536;
  // zstd's: 1 is fast, 19 is small. At 3 writing takes about as long as reading.
  int compression_level = 3;
};

class TraceWriter {
 public:
  // Begins a new file in place of what was there. `names` must live as long and keeps its numbers.
  // Throws WriteError.
  TraceWriter(std::filesystem::path path, const About& about, const Names& names,
              const TraceWriterOptions& options = {});
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Throws UsageError for an event no reader would take: a name that `names` has not, more than
  // 65536 streams, negative bytes. Throws WriteError once a part cannot be written; the file then
  // ends with the part before it, and all that follows throws as well.
  void append(const Event& event);
  // Writes a part of what there is, so that readers see it. Not for every event: parts are the
  // smaller the more they hold.
  void flush();
  // Flushes and closes; nothing may be appended after it.
  void close();

  // Bytes in the file: without what is not flushed.
  [[nodiscard]] Bytes written() const;

 private:
  struct File;
  std::unique_ptr<File> file_;
};

}  // namespace headroom::trace

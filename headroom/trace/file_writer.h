// Writes a Headroom trace (docs/formats/trace.md): compact, and readable while it is being written.
// Everything that was flushed can be read, even if the writer is killed.
//
//   TraceWriter writer("run.hrtrace", {.program = "train"}, names);
//   writer.append(event);    // names in it are numbers of `names`
//   writer.close();          // or leave it to the destructor, which reports no errors
//
// Use from one thread at a time; `names` too may grow only between calls.
#pragma once

#include <filesystem>
#include <memory>

#include "headroom/trace/reader.h"

namespace headroom::trace {

struct TraceWriterOptions {
  // Larger parts take less disk space; a kill loses the events not yet in a part. At most 65536.
  std::uint32_t events_per_part = 65'536;
};

class TraceWriter {
 public:
  // Replaces an existing file. `names` must outlive the writer and keep its numbers. Throws
  // WriteError.
  TraceWriter(std::filesystem::path path, const About& about, const Names& names,
              const TraceWriterOptions& options = {});
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Throws UsageError for an event that readers would reject: an unknown name, more than 65536
  // streams, negative bytes. Throws WriteError if a part cannot be written; the file then ends with
  // the previous part, and all later calls throw too.
  void append(const Event& event);
  // Writes the pending events as a part, so that readers see them. Do not call it for every event:
  // larger parts compress better.
  void flush();
  // Flushes and closes the file; append nothing after it.
  void close();

  // Size of the file, without pending events.
  [[nodiscard]] Bytes written() const;

 private:
  struct File;
  std::unique_ptr<File> file_;
};

}  // namespace headroom::trace

// Writes a trace in the form of chrome://tracing and ui.perfetto.dev: one process a device with
// tracks of its memory, marks and refusals on them, and steps, phases and modules as slices
// (docs/formats/chrome.md).
//
//   ChromeWriter writer("out.json", about, names);
//   writer.append(event, figures);  // figures: after the event, as the allocator counts
//   writer.finish();
//
// The viewers keep all in memory and give up at some hundred MB, so tracks are thinned: of each
// stretch of time the first, lowest, highest and last sample stay. Peaks are never lost.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "headroom/trace/reader.h"

namespace headroom::trace {

// What a card's memory looks like after an event. Nothing: not known, and not drawn.
struct Figures {
  std::optional<Bytes> allocated = {}, reserved = {}, active = {}, requested = {};
};

struct ChromeOptions {
  // Samples of all tracks together, more or less; 0: all of them.
  std::uint64_t most_samples = 1'000'000;
  bool slices = true;
};

class ChromeWriter {
 public:
  // `names` must live as long and keeps its numbers. All functions throw WriteError.
  ChromeWriter(const std::filesystem::path& path, const About& about, const Names& names,
               const ChromeOptions& options = {});
  ~ChromeWriter();  // without finish() the target is as it was
  ChromeWriter(const ChromeWriter&) = delete;
  ChromeWriter& operator=(const ChromeWriter&) = delete;

  void append(const Event& event, const Figures& figures);
  void finish();

  [[nodiscard]] std::uint64_t samples_written() const;

 private:
  struct File;
  std::unique_ptr<File> file_;
};

}  // namespace headroom::trace

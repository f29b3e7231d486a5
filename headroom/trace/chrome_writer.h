// Writes a trace for chrome://tracing and ui.perfetto.dev: one process per device, with tracks of
// its memory, marks and refusals as instants, and steps, phases and modules as slices
// (docs/formats/chrome.md).
//
//   ChromeWriter writer("out.json", about, names);
//   writer.append(event, figures);  // figures: after the event, as the allocator counts
//   writer.finish();
//
// The viewers keep the whole file in memory and fail at a few hundred MB, so tracks are thinned: of
// each stretch of samples the first, lowest, highest and last stay. Thinning never drops a peak.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "headroom/trace/reader.h"

namespace headroom::trace {

// A card's memory after an event. An empty figure is unknown and not drawn.
struct Figures {
  std::optional<Bytes> allocated = {}, reserved = {}, active = {}, requested = {};
};

class ChromeWriter {
 public:
  // `names` must outlive the writer and keep its numbers; `most_samples` limits approximately the
  // samples of all tracks together. All functions throw WriteError.
  ChromeWriter(const std::filesystem::path& path, const About& about, const Names& names,
               std::uint64_t most_samples = 1'000'000);
  ~ChromeWriter();  // without finish() the target file is unchanged
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

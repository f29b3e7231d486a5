// Exports any trace to the formats of common viewers. It replays the trace and writes the events of
// the allocator model, with segments and addresses. So a list of plain events becomes a snapshot
// for pytorch.org/memory_viz, and a recorded trace shows the effect of other settings.
//
//   const auto trace = open_trace("run.hrtrace");
//   export_snapshot("run.pickle", *trace, {.setup = {.settings = "expandable_segments:True"}});
#pragma once

#include <cstdint>
#include <filesystem>

#include "headroom/trace/chrome_writer.h"
#include "headroom/trace/replay.h"

namespace headroom::trace {

struct Exported {
  Replay replay;
  std::uint64_t written = 0;  // entries, or samples
  bool stopped = false;       // by options.cancel; the target file is unchanged
};

// Ignores `options.follower`. Throws the exceptions of replay() and the writers.
Exported export_snapshot(const std::filesystem::path& path, Reader& trace,
                         const ReplayOptions& options = {});
Exported export_chrome(const std::filesystem::path& path, Reader& trace,
                       const ReplayOptions& options = {});

}  // namespace headroom::trace

// Files for the viewers that people know, from any trace: it is replayed, and what the model of the
// allocator did is written, with its segments and addresses. So a list of plain events becomes a
// snapshot that pytorch.org/memory_viz shows, and a recorded one shows what other settings would
// have made of it.
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
  bool stopped = false;       // by options.cancel: the target is as it was
};

// `options.follower` is not used. Throw as replay() and the writers.
Exported export_snapshot(const std::filesystem::path& path, Reader& trace,
                         const ReplayOptions& options = {});
Exported export_chrome(const std::filesystem::path& path, Reader& trace,
                       const ReplayOptions& options = {}, const ChromeOptions& chrome = {});

}  // namespace headroom::trace

// A trace as one self-contained HTML page: memory over time by category, module, operator or line,
// the allocator's segments at the peak, and the largest tensors. It opens from a file, without a
// network.
//
//   const auto trace = open_trace("run.hrtrace");
//   write_page("report.html", timeline_of(*trace), {.title = "gpt2"});
//
// The page holds the tensors themselves, compressed, and draws from them. A trace too long for
// `most_bytes` is thinned (timeline.h): the peaks stay, and every figure that the page shows is
// exact.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/page/timeline.h"
#include "headroom/trace/export.h"

namespace headroom::page {

struct PageOptions {
  std::string title;
  // Sentences under the title.
  std::vector<std::string> notes = {};
  bool survived = false;        // refused requests did not end the program
  Bytes most_bytes{4'800'000};  // of the page
};

[[nodiscard]] std::string page_of(const Timeline& timeline, const PageOptions& options);
// Throws WriteError.
void write_page(const std::filesystem::path& path, const Timeline& timeline,
                const PageOptions& options);

// Replays the trace on the recorded card (timeline.h) and writes its page. `written` counts the
// tensors in the trace. Throws InputError for a trace without events, and writes nothing then.
trace::Exported export_page(const std::filesystem::path& path, trace::Reader& trace,
                            const trace::ReplayOptions& replay, const PageOptions& options);

struct Difference;
// Two traces, one above the other, with the table of their difference (diff.h).
void write_page(const std::filesystem::path& path, const Timeline& a, const Timeline& b,
                const Difference& difference, const PageOptions& options);

}  // namespace headroom::page

// Traces for viewers, replayed: what is written is what the model did, where the trace says it was.
#include "headroom/trace/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "tests/support/temporary_folder.h"
#include "tests/trace/written_events.h"

namespace headroom::trace {
namespace {

using namespace headroom::literals;
using namespace headroom::trace::testing;
using headroom::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// "alloc 30 h.0": kind, MiB, module of each event of a file.
std::vector<std::string> lines_of(const std::filesystem::path& path) {
  const auto trace = open_trace(path);
  std::vector<std::string> lines;
  for (Event event; trace->next(event);)
    lines.push_back(std::string(to_string(event.kind)) + " " +
                    std::to_string(event.bytes.count >> 20) + " " +
                    std::string(trace->names().text(event.module)));
  return lines;
}

TEST(ExportSnapshot, HasSegmentsAndTheModuleOfEachEvent) {
  const TemporaryFolder folder;
  std::vector<Event> events{alloc(1, 30_MiB), free_requested(1), free_completed(1)};
  Names names;
  events[0].module = names.number("h.0");
  const auto trace = trace_of(events, {.format = Format::pickle}, names);
  const Exported exported = export_snapshot(folder.path() / "x.pickle", *trace);
  EXPECT_THAT(lines_of(folder.path() / "x.pickle"),
              ElementsAre("segment_alloc 30 h.0", "alloc 30 h.0", "free_requested 30 ",
                          "free_completed 30 "));
  EXPECT_EQ(exported.written, 4U);
}

// The stream that was made up for it is nowhere in the file.
TEST(ExportSnapshot, CompletesALateFreeAtTheNextRequest) {
  const TemporaryFolder folder;
  const auto trace = trace_of({alloc(1, 30_MiB), free_requested(1), alloc(2, 40_MiB, 1),
                               free_completed(1), alloc(3, 30_MiB, 1)});
  (void)export_snapshot(folder.path() / "x.pickle", *trace);
  const auto reader = open_trace(folder.path() / "x.pickle");
  std::string kinds;
  for (Event event; reader->next(event);) {
    EXPECT_LE(event.stream, 1U);
    kinds += std::string(kinds.empty() ? "" : " ") + std::string(to_string(event.kind));
  }
  EXPECT_EQ(kinds,
            "segment_alloc alloc free_requested segment_alloc alloc free_completed segment_alloc "
            "alloc");
}

TEST(ExportChrome, HasTheReplaysFiguresAndMarks) {
  const TemporaryFolder folder;
  std::vector<Event> events{alloc(1, 3'000'000_B), event_of(Kind::mark)};
  Names names;
  events[1].operation = names.number("here");
  const auto trace = trace_of(events, {.format = Format::pickle}, names);
  (void)export_chrome(folder.path() / "x.json", *trace);
  const std::string text = read_file(folder.path() / "x.json").value_or("");
  EXPECT_THAT(text, HasSubstr("20971520")) << "the segment";
  EXPECT_THAT(text, HasSubstr("3000320")) << "rounded";
  EXPECT_THAT(text, HasSubstr("\"here\""));
}

// A request that was refused during the recording fits into this card.
TEST(ExportChrome, ShowsTheRefusalsOfTheReplayOnly) {
  const TemporaryFolder folder;
  const auto text_with = [&](Bytes capacity) {
    const auto trace = trace_of({event_of(Kind::oom, 0, 80_MiB), alloc(1, 30_MiB)});
    (void)export_chrome(folder.path() / "x.json", *trace, {.setup = {.capacity = capacity}});
    return read_file(folder.path() / "x.json").value_or("");
  };
  EXPECT_THAT(text_with(100_MiB), ::testing::Not(HasSubstr("out of memory")));
  EXPECT_THAT(text_with(10_MiB), HasSubstr("out of memory: asked for 30.0 MiB"));
}

TEST(Export, LeavesTheTargetAloneWhenItIsStopped) {
  const TemporaryFolder folder;
  const auto path = folder.write("x", "old");
  std::stop_source stop;
  stop.request_stop();
  const auto trace = trace_of({alloc(1, 30_MiB)});
  EXPECT_TRUE(export_snapshot(path, *trace, {.cancel = stop.get_token()}).stopped);
  EXPECT_EQ(read_file(path), "old");
}

}  // namespace
}  // namespace headroom::trace

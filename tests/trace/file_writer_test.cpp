// Events that the writer of Headroom's own format refuses, and files that it leaves after a
// failure.
#include "headroom/trace/file_writer.h"

#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_folder.h"
#include "tests/trace/events_of.h"
#include "tests/trace/training_events.h"

namespace headroom::trace {
namespace {

using headroom::testing::FileSizeLimit;
using headroom::testing::TemporaryFolder;
using testing::all_events;

TEST(TraceWriter, RefusesEventsThatNoReaderTakes) {
  const TemporaryFolder folder;
  const Names names;
  TraceWriter writer(folder.path() / "t", {}, names);
  Event nameless, negative, streams, everywhere;
  nameless.module = 1;
  negative.bytes = Bytes{-1};
  streams.stream = 65'536;
  everywhere.stream = kAllStreams;
  EXPECT_THROW(writer.append(nameless), UsageError);
  EXPECT_THROW(writer.append(negative), UsageError);
  EXPECT_THROW(writer.append(streams), UsageError);
  EXPECT_THROW(writer.append(everywhere), UsageError);
  writer.append(Event{});
  writer.close();
  EXPECT_EQ(all_events(*open_trace(folder.path() / "t")).size(), 1U);
}

TEST(TraceWriter, WritesMoreNamesThanOnePartHolds) {
  const TemporaryFolder folder;
  Names names;
  for (char c = 'a'; c < 'a' + 20; ++c) names.number(std::string(60'000, c) + "!");
  for (int i = 0; i < 200'000; ++i) names.number("name " + std::to_string(i));
  TraceWriter writer(folder.path() / "t", {}, names);
  Event event;
  event.module = names.number("name 199999");
  writer.append(event);
  writer.close();
  const auto trace = open_trace(folder.path() / "t");
  EXPECT_EQ(all_events(*trace).at(0).module, event.module);
  EXPECT_EQ(trace->names().text(event.module), "name 199999");
}

TEST(TraceWriter, LeavesAReadableTraceWhenTheDiskIsFull) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "t";
  Names names;
  testing::TrainingEvents source(names, 2);
  TraceWriter writer(path, {}, names, {.events_per_part = 100});
  std::size_t appended = 0;
  {
    const FileSizeLimit limit(20'000);
    EXPECT_THROW(
        while (true) {
          writer.append(source.next());
          ++appended;
        },
        WriteError);
    EXPECT_THROW(writer.flush(), WriteError) << "and goes on saying so";
    EXPECT_THROW(writer.append(source.next()), WriteError);
  }
  EXPECT_THROW(writer.close(), WriteError) << "even with room again: something is missing";
  const auto trace = open_trace(path);
  EXPECT_EQ(all_events(*trace).size(), appended / 100 * 100);
  EXPECT_EQ(trace->cut_off(), 0U) << "half a part was taken back";
}

TEST(TraceWriter, CannotWriteWhereThereIsNoFolder) {
  const TemporaryFolder folder;
  const Names names;
  EXPECT_THROW(TraceWriter(folder.path() / "none/t", {}, names), WriteError);
}

TEST(TraceWriter, TakesNothingAfterItWasClosed) {
  const TemporaryFolder folder;
  const Names names;
  TraceWriter writer(folder.path() / "t", {}, names, {.events_per_part = 1});
  writer.close();
  writer.close();
  EXPECT_THROW(writer.append(Event{}), WriteError);
}

}  // namespace
}  // namespace headroom::trace

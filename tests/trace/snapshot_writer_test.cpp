#include "headroom/trace/snapshot_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "headroom/trace/memory_reader.h"
#include "headroom/trace/recorder.h"
#include "headroom/trace/recording_observer.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_folder.h"
#include "tests/trace/events_of.h"
#include "tests/trace/pickled.h"
#include "tests/trace/written_events.h"

namespace headroom::trace {
namespace {

using namespace headroom::literals;
using namespace headroom::trace::testing;
using headroom::testing::FileSizeLimit;
using headroom::testing::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void write_snapshot(const std::filesystem::path& path, Reader& trace,
                    const std::vector<SegmentsOfDevice>& at_end = {},
                    const std::string& settings = "") {
  trace::SnapshotWriter writer(path, trace.names());
  for (Event event; trace.next(event);) writer.append(event);
  writer.finish(at_end, settings);
}

// A few steps of a program on the model of the allocator: modules, phases and categories, several
// streams, a refusal, an emptied cache, and blocks that are alive at the end.
class Program {
 public:
  explicit Program(const std::string& settings, std::uint16_t device = 0)
      : settings_(settings),
        device_(device),
        card_({.capacity = 256_MiB,
               .settings = allocator::parse_settings(settings),
               .events = allocator::EventRule::when_told}),
        observer_(recorder_, {.device = device, .now_ns = [this] { return time_ns_ += 5000; }}) {
    card_.observe(&observer_);
    for (std::uint32_t step = 1; step <= 3; ++step) run_step(step);
    card_.empty_cache();
    keep_some();
  }

  void write(const std::filesystem::path& path) {
    write_snapshot(path, *reader(), at_end(), settings_);
  }

  [[nodiscard]] std::unique_ptr<Reader> reader() const {
    return read_memory(recorder_, {.times_are_known = true});
  }
  [[nodiscard]] std::vector<SegmentsOfDevice> at_end() const {
    return {{device_, card_.snapshot()}};
  }

 private:
  void run_step(std::uint32_t step) {
    recorder_.set_step(step);
    const ModuleScope module(recorder_, recorder_.name("h." + std::to_string(step) + ".attn"));
    const OperationScope operation("aten::mm");
    const PhaseScope phase(recorder_, Phase::forward);
    const auto activation = card_.allocate(30_MiB + step * 1_KiB);
    const auto small = card_.allocate(700_B, 1);
    card_.record_stream(activation, 1);
    card_.free(activation);
    if (step == 2) static_cast<void>(card_.allocate(300_MiB));  // refused
    card_.complete_events();
    card_.free(small);
  }

  void keep_some() {
    static_cast<void>(card_.allocate(5_MiB));
    const auto waiting = card_.allocate(12_MiB);
    card_.record_stream(waiting, 1);
    card_.free(waiting);
    recorder_.mark("the end", time_ns_);
  }

  std::string settings_;
  std::uint16_t device_;
  std::int64_t time_ns_ = 1'700'000'000'000'000'000;
  Recorder recorder_;
  allocator::CachingAllocator card_;
  RecordingObserver observer_;
};

Json viewed(const std::filesystem::path& path) {
  const std::string script = std::string(HEADROOM_SOURCE_DIR) + "/tests/trace/memory_viz.py";
  return parse_json(output_of(std::string(PYTHON) + " '" + script + "' '" + path.string() + "' '" +
                              HEADROOM_TORCH_DIR + "' 2>&1"),
                    "memory_viz.py");
}

// Alike but for what a snapshot cannot say.
std::vector<Event> as_in_snapshots(std::vector<Event> events) {
  for (Event& event : events) event.time_ns = event.time_ns / 1000 * 1000;
  return events;
}

class SnapshotWriter : public ::testing::TestWithParam<const char*> {};

TEST_P(SnapshotWriter, IsUnderstoodByPyTorchsViewer) {
  const TemporaryFolder folder;
  Program program(GetParam());
  program.write(folder.path() / "s.pickle");
  const Json view = viewed(folder.path() / "s.pickle");
  EXPECT_EQ(view["at_the_beginning"], Json::parse("[[0, 0]]"));
  EXPECT_THAT(view["viewer"]["memory"].get<std::string>(), HasSubstr("active_allocated;"));
  EXPECT_THAT(view["viewer"]["trace"].get<std::string>(), HasSubstr("raise OutOfMemoryError"));
}

TEST_P(SnapshotWriter, IsReadBackAsTheSameEvents) {
  const TemporaryFolder folder;
  Program program(GetParam());
  program.write(folder.path() / "s.pickle");
  const auto before = program.reader();
  const auto after = open_trace(folder.path() / "s.pickle");
  const auto expected = as_in_snapshots(all_events(*before));
  const auto events = all_events(*after);
  ASSERT_EQ(events.size(), expected.size());
  for (std::size_t i = 0; i < events.size(); ++i) {
    Event same = events[i];  // but for the numbers of the names
    same.module = expected[i].module;
    same.operation = expected[i].operation;
    EXPECT_EQ(same, expected[i]) << i;
    EXPECT_EQ(after->names().text(events[i].module), before->names().text(expected[i].module));
    EXPECT_EQ(after->names().text(events[i].operation),
              before->names().text(expected[i].operation));
  }
  EXPECT_EQ(after->about().settings, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Settings, SnapshotWriter,
                         ::testing::Values("", "expandable_segments:True",
                                           "max_split_size_mb:64,roundup_power2_divisions:8"));

TEST(SnapshotFile, KeepsDevicesApart) {
  const TemporaryFolder folder;
  std::vector<Event> events;
  for (std::uint64_t i = 0; i < 5000; ++i) {
    events.push_back(event_of(Kind::segment_alloc, i << 21, 2_MiB));
    events.back().device = i % 3 == 0 ? 2 : 1;
    events.back().time_ns = static_cast<std::int64_t>(i) * 1000 + 1000;
  }
  const auto trace = read_memory(events, Names());
  write_snapshot(folder.path() / "s.pickle", *trace);
  EXPECT_EQ(all_events(*open_trace(folder.path() / "s.pickle")), events);
}

// memory_viz.js ends with an error when categories are used and none of them is "unknown".
TEST(SnapshotFile, SaysUnknownOfSomethingWhenItUsesCategories) {
  const TemporaryFolder folder;
  Event event = event_of(Kind::segment_alloc, 4096, 4096_B);
  event.category = Category::activation;
  const auto trace = read_memory({event}, Names());
  allocator::SegmentInfo segment{.address = 4096, .size = 4096_B, .blocks = {}};
  segment.blocks.push_back({.address = 4096, .size = 4096_B});
  write_snapshot(folder.path() / "s.pickle", *trace, {{0, {segment}}});
  EXPECT_EQ(viewed(folder.path() / "s.pickle")["categories"],
            Json::parse(R"(["activation", "unknown"])"));
}

TEST(SnapshotFile, WritesInvalidUtf8SoThatPythonCanReadIt) {
  const TemporaryFolder folder;
  Names names;
  Event mark = event_of(Kind::mark);
  mark.operation = names.number("caf\xe9");
  const auto trace = read_memory({mark}, names);
  write_snapshot(folder.path() / "s.pickle", *trace);
  viewed(folder.path() / "s.pickle");
  const auto again = open_trace(folder.path() / "s.pickle");
  EXPECT_EQ(again->names().text(all_events(*again).at(0).operation), "caf\xEF\xBF\xBD");
}

TEST(SnapshotFile, LeavesOutEventsThatASnapshotCannotExpress) {
  const TemporaryFolder folder;
  const Names names;
  trace::SnapshotWriter writer(folder.path() / "s.pickle", names);
  for (int kind = 0; kind < kKinds; ++kind)
    writer.append(event_of(static_cast<Kind>(kind), 4096, 1_B));
  EXPECT_EQ(writer.written(), 9u);
}

TEST(SnapshotFile, RefusesAddressesThatViewersCannotRead) {
  const TemporaryFolder folder;
  const auto trace = read_memory({alloc(std::uint64_t{1} << 63, 1_B)}, Names());
  EXPECT_THROW(write_snapshot(folder.path() / "s.pickle", *trace), UsageError);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// A trace names pools as it likes; 2^63 or more was refused once the whole trace had been played.
TEST(SnapshotFile, NumbersPoolsInTheOrderOfTheirAppearance) {
  const TemporaryFolder folder;
  std::vector<allocator::SegmentInfo> segments;
  for (const allocator::PoolId pool :
       {~std::uint64_t{0}, std::uint64_t{0}, std::uint64_t{7}, ~std::uint64_t{0}})
    segments.push_back({.address = 4096, .size = 4096_B, .pool = pool, .blocks = {}});
  write_snapshot(folder.path() / "s.pickle", *read_memory({}, Names()), {{0, segments}});
  EXPECT_EQ(output_of(std::string(PYTHON) +
                      " -c \"import pickle; print([s['segment_pool_id'] for "
                      "s in pickle.load(open('" +
                      (folder.path() / "s.pickle").string() + "', 'rb'))['segments']])\""),
            "[(0, 1), (0, 0), (0, 2), (0, 1)]\n");
}

// Each device costs memory, up to a file of its own, and all below the highest are written.
TEST(SnapshotFile, RefusesMoreDevicesThanItsReaderTakes) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "s.pickle";
  write_snapshot(path, *read_memory({on_device(1023, alloc(1, 1_B))}, Names()));
  EXPECT_EQ(all_events(*open_trace(path)).at(0).device, 1023);
  EXPECT_THROW(write_snapshot(path, *read_memory({on_device(1024, alloc(1, 1_B))}, Names())),
               InputError);
  EXPECT_THROW(write_snapshot(path, *read_memory({}, Names()), {{65'535, {}}}), InputError);
}

TEST(SnapshotFile, LeavesTheOldFileWhenTheDiskIsFull) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "s.pickle", "old");
  for (const std::uint16_t device : {std::uint16_t{0}, std::uint16_t{1}}) {
    Event event = event_of(Kind::segment_alloc, 1, 1_B);
    event.device = device;
    const auto trace = read_memory(std::vector<Event>(100'000, event), Names());
    const FileSizeLimit limit(1 << 20);
    EXPECT_THROW(write_snapshot(folder.path() / "s.pickle", *trace), WriteError);
  }
  EXPECT_EQ(read_file(folder.path() / "s.pickle"), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

}  // namespace
}  // namespace headroom::trace

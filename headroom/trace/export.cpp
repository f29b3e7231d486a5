#include "headroom/trace/export.h"

#include <functional>

#include "headroom/trace/recording_observer.h"
#include "headroom/trace/snapshot_writer.h"

namespace headroom::trace {
namespace {

using allocator::CachingAllocator;

// Writes the allocator's own events, with the time and place of the trace event that caused them.
class SnapshotFollower final : public Follower {
 public:
  SnapshotFollower(SnapshotWriter& writer, const Operations& operations)
      : writer_(writer), operations_(operations) {}

  void before(const Event& event, std::uint64_t) override { cause_ = event; }

  void on(const allocator::AllocatorEvent& allocator_event) override {
    Event event = cause_;
    event.kind = kind_of(allocator_event.kind);
    event.address = allocator_event.address;
    event.bytes = allocator_event.size;
    event.stream = operations_.stream_in_file(allocator_event.stream).value_or(0);
    writer_.append(event);
  }

  void after(const Event& event, const CachingAllocator&) override {
    if (event.kind == Kind::mark) writer_.append(event);
  }

 private:
  SnapshotWriter& writer_;
  const Operations& operations_;
  Event cause_;
};

class ChromeFollower final : public Follower {
 public:
  explicit ChromeFollower(ChromeWriter& writer) : writer_(writer) {}

  void before(const Event&, std::uint64_t) override { refused_ = false; }

  void on(const allocator::AllocatorEvent& allocator_event) override {
    if (allocator_event.kind == allocator::AllocatorEvent::Kind::oom) refused_ = true;
  }

  void after(const Event& event, const CachingAllocator& card) override {
    const allocator::Statistics& now = card.statistics();
    Figures figures;
    figures.allocated = Bytes{now.allocated_bytes.all.current};
    figures.reserved = Bytes{now.reserved_bytes.all.current};
    figures.active = Bytes{now.active_bytes.all.current};
    figures.requested = Bytes{now.requested_bytes.all.current};
    Event shown = event;
    // A request refused in the recording may fit in this replay, and the other way round.
    if (event.kind == Kind::oom) shown.kind = Kind::complete_events;
    if (refused_) shown.kind = Kind::oom;
    writer_.append(shown, figures);
  }

 private:
  ChromeWriter& writer_;
  bool refused_ = false;
};

OperationsOptions with_events(OperationsOptions options) {
  options.keep_events = true;
  return options;
}

// `follower` feeds a writer; `finish` completes that writer's file.
Exported followed(Reader& trace, Operations& operations, const ReplayOptions& options,
                  Follower& follower, const std::function<void(const Replay&)>& finish) {
  ReplayOptions with_follower = options;
  with_follower.follower = &follower;
  Exported exported;
  exported.replay = replay(trace, operations, with_follower);
  exported.stopped = options.cancel.stop_requested();
  if (!exported.stopped) finish(exported.replay);
  return exported;
}

}  // namespace

Exported export_snapshot(const std::filesystem::path& path, Reader& trace,
                         const ReplayOptions& options) {
  Operations operations(trace, with_events(options.operations));
  SnapshotWriter writer(path, trace.names());
  SnapshotFollower follower(writer, operations);
  Exported exported = followed(trace, operations, options, follower, [&](const Replay& replay) {
    SegmentsOfDevice device{replay.noticed.device.value_or(0), replay.at_end};
    for (allocator::SegmentInfo& segment : device.segments) {
      segment.stream = operations.stream_in_file(segment.stream).value_or(0);
      for (allocator::BlockInfo& block : segment.blocks)
        block.stream = operations.stream_in_file(block.stream).value_or(0);
    }
    writer.finish({device}, replay.card.settings);
  });
  exported.written = writer.written();
  return exported;
}

Exported export_chrome(const std::filesystem::path& path, Reader& trace,
                       const ReplayOptions& options) {
  Operations operations(trace, with_events(options.operations));
  About about = trace.about();
  about.settings = options.setup.settings.value_or(about.settings);
  ChromeWriter writer(path, about, trace.names());
  ChromeFollower follower(writer);
  Exported exported =
      followed(trace, operations, options, follower, [&](const Replay&) { writer.finish(); });
  exported.written = writer.samples_written();
  return exported;
}

}  // namespace headroom::trace

#include "headroom/trace/snapshot_writer.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "headroom/allocator/settings.h"
#include "headroom/base/error.h"
#include "headroom/base/output_file.h"
#include "headroom/trace/detail/device_trace.h"
#include "headroom/trace/detail/fault.h"
#include "headroom/trace/detail/pickle_emitter.h"
#include "headroom/trace/detail/stack_emitter.h"

namespace headroom::trace {
namespace {

namespace fs = std::filesystem;
using allocator::BlockInfo;
using allocator::SegmentInfo;
using pickle::DeviceTrace;
using pickle::MemoNumbers;
using pickle::PickleEmitter;
using pickle::Place;
using pickle::StackEmitter;

bool is_of_snapshots(Kind kind) {
  return kind <= Kind::mark;
}

// The unnamed spool file needs a writable folder, and a pipe's folder may not be writable.
fs::path place_for_spools(const fs::path& path) {
  std::error_code error;
  const bool is_file = !fs::exists(path, error) || fs::is_regular_file(path, error);
  return is_file ? path : fs::temp_directory_path() / "headroom-snapshot";
}

const char* state_of(const BlockInfo& block) {
  switch (block.state) {
    case BlockInfo::State::allocated:
      return "active_allocated";
    case BlockInfo::State::awaiting_free:
      return "active_pending_free";
    case BlockInfo::State::free:
      break;
  }
  return "inactive";
}

template <typename Count>
std::int64_t sum(const SegmentInfo& segment, const Count& count) {
  std::int64_t result = 0;
  for (const BlockInfo& block : segment.blocks) result += count(block).count;
  return result;
}

}  // namespace

struct SnapshotWriter::File {
  File(const fs::path& path, const Names& all_names)
      : names(all_names), beside(place_for_spools(path)), output(path) {}

  DeviceTrace& trace(std::uint16_t device) {
    if (device >= detail::kMostDevices)
      throw InputError(expectation(
          "trace", "a device below " + std::to_string(detail::kMostDevices) + ", for a snapshot",
          std::to_string(device)));
    while (traces.size() <= device)
      traces.push_back(std::make_unique<DeviceTrace>(beside, names, numbers));
    return *traces[device];
  }

  std::int64_t pool_number(allocator::PoolId pool) {
    return pools.try_emplace(pool, static_cast<std::int64_t>(pools.size())).first->second;
  }
  void put_traces();
  void put_segments(const std::vector<SegmentsOfDevice>& at_end);
  void put_segment(const SegmentInfo& segment, std::uint16_t device);
  void put_blocks(const SegmentInfo& segment, std::uint16_t device);
  void put_settings(const std::string& text);
  void settle() {
    output.write(rest);
    rest.clear();
  }

  const Names& names;
  fs::path beside;
  OutputFile output;
  MemoNumbers numbers;
  std::vector<std::unique_ptr<DeviceTrace>> traces;  // by device
  std::string rest;
  PickleEmitter pickle{rest, numbers};
  StackEmitter stacks{names};
  // A snapshot numbers its pools; a trace's pool numbers are arbitrary. 0 is the common pool.
  std::unordered_map<allocator::PoolId, std::int64_t> pools{{0, 0}};
  std::uint64_t written = 0;
};

void SnapshotWriter::File::put_traces() {
  pickle.text("device_traces");
  pickle.open_list();
  pickle.open_part();
  for (const auto& trace : traces) {
    settle();
    trace->finish(output);
  }
  pickle.close_part();
}

void SnapshotWriter::File::put_segments(const std::vector<SegmentsOfDevice>& at_end) {
  pickle.text("segments");
  pickle.open_list();
  for (const auto& [device, segments] : at_end)
    for (const SegmentInfo& segment : segments) {
      pickle.open_part();
      put_segment(segment, device);
      pickle.close_part();
      settle();
    }
}

void SnapshotWriter::File::put_segment(const SegmentInfo& segment, std::uint16_t device) {
  const auto is_allocated = [](const BlockInfo& b) {
    return b.state == BlockInfo::State::allocated;
  };
  const auto is_active = [](const BlockInfo& b) { return b.state != BlockInfo::State::free; };
  pickle.open_dict();
  pickle.text("device"), pickle.integer(device);
  pickle.text("address"), pickle.address(segment.address);
  pickle.text("total_size"), pickle.integer(segment.size.count);
  pickle.text("allocated_size");
  pickle.integer(sum(segment, [&](const auto& b) { return is_allocated(b) ? b.size : Bytes{}; }));
  pickle.text("active_size");
  pickle.integer(sum(segment, [&](const auto& b) { return is_active(b) ? b.size : Bytes{}; }));
  pickle.text("requested_size");
  pickle.integer(sum(segment, [&](const auto& b) { return is_active(b) ? b.requested : Bytes{}; }));
  pickle.text("stream"), pickle.integer(segment.stream);
  pickle.text("segment_type"), pickle.text(segment.is_large ? "large" : "small");
  pickle.text("segment_pool_id"), pickle.pair(0, pool_number(segment.pool));
  pickle.text("is_expandable"), pickle.boolean(segment.is_expandable);
  pickle.text("frames"), stacks.put(pickle, {});
  pickle.text("blocks"), put_blocks(segment, device);
  pickle.close_dict();
}

void SnapshotWriter::File::put_blocks(const SegmentInfo& segment, std::uint16_t device) {
  pickle.open_list();
  for (const BlockInfo& block : segment.blocks) {
    const bool is_free = block.state == BlockInfo::State::free;
    const Place place =
        is_free || device >= traces.size() ? Place() : traces[device]->owner(block.address);
    pickle.open_part();
    pickle.open_dict();
    pickle.text("address"), pickle.address(block.address);
    pickle.text("size"), pickle.integer(block.size.count);
    pickle.text("requested_size"), pickle.integer(block.requested.count);
    pickle.text("state"), pickle.text(state_of(block));
    pickle.text("frames"), stacks.put(pickle, place);
    pickle.close_dict();
    pickle.close_part();
  }
}

void SnapshotWriter::File::put_settings(const std::string& text) {
  const allocator::Settings settings = allocator::parse_settings(text);
  const auto whole = [](std::uint64_t number) {
    return static_cast<std::int64_t>(std::min<std::uint64_t>(number, std::int64_t{1} << 62));
  };
  pickle.text("allocator_settings");
  pickle.open_dict();
  pickle.text("PYTORCH_CUDA_ALLOC_CONF"), pickle.text(text);
  pickle.text("max_split_size");
  pickle.integer(settings.max_split_size ? settings.max_split_size->count : -1);
  pickle.text("garbage_collection_threshold");
  pickle.number(settings.garbage_collection_threshold);
  pickle.text("expandable_segments"), pickle.boolean(settings.expandable_segments);
  pickle.text("pinned_num_register_threads");
  pickle.integer(whole(settings.pinned_num_register_threads));
  pickle.text("release_lock_on_cudamalloc"), pickle.boolean(settings.release_lock_on_cudamalloc);
  pickle.text("pinned_use_cuda_host_register");
  pickle.boolean(settings.pinned_use_cuda_host_register);
  pickle.text("graph_capture_record_stream_reuse");
  pickle.boolean(settings.graph_capture_record_stream_reuse);
  pickle.text("roundup_power2_divisions");
  pickle.open_dict();
  for (std::size_t i = 0; i < settings.roundup_power2_divisions.size(); ++i) {
    pickle.text(std::to_string(1u << i));
    pickle.integer(whole(settings.roundup_power2_divisions[i]));
  }
  pickle.close_dict();
  pickle.close_dict();
}

SnapshotWriter::SnapshotWriter(const fs::path& path, const Names& names)
    : file_(std::make_unique<File>(path, names)) {
  file_->pickle.begin();
  file_->pickle.open_dict();
}

SnapshotWriter::~SnapshotWriter() = default;

void SnapshotWriter::append(const Event& event) {
  if (!is_of_snapshots(event.kind)) return;
  file_->trace(event.device).append(event);
  ++file_->written;
}

void SnapshotWriter::finish(const std::vector<SegmentsOfDevice>& at_end,
                            const std::string& settings) {
  file_->trace(0);
  for (const SegmentsOfDevice& device : at_end) file_->trace(device.device);
  file_->put_traces();
  file_->put_segments(at_end);
  file_->put_settings(settings);
  file_->pickle.text("external_annotations");
  file_->pickle.open_list();
  file_->pickle.close_dict();
  file_->pickle.end();
  file_->settle();
  file_->output.commit();
}

std::uint64_t SnapshotWriter::written() const {
  return file_->written;
}

}  // namespace headroom::trace

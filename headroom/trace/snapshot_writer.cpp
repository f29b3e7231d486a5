#include "headroom/trace/snapshot_writer.h"

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>
#include <utility>

#include "headroom/allocator/settings.h"
#include "headroom/base/error.h"
#include "headroom/base/output_file.h"
#include "headroom/trace/detail/frames.h"
#include "headroom/trace/detail/pickle_emitter.h"
#include "headroom/trace/detail/spool.h"

namespace headroom::trace {
namespace {

namespace fs = std::filesystem;
using allocator::BlockInfo;
using allocator::SegmentInfo;
using pickle::MemoNumbers;
using pickle::PickleEmitter;

// As many as Python's own pickler puts into one part of a list.
constexpr int kPart = 1000;
constexpr std::uint64_t kEventsBetweenLooks = 4096;

bool is_of_snapshots(Kind kind) {
  return kind <= Kind::mark;
}

std::int64_t readable(std::uint64_t number) {
  if (number > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
    throw UsageError(expectation("trace", "addresses below 2^63, for a snapshot",
                                 std::to_string(number), "a replay, which gives addresses"));
  return static_cast<std::int64_t>(number);
}

// A file without a name needs a folder; that of a pipe may be none to write in.
fs::path place_for_spools(const fs::path& path) {
  std::error_code error;
  const bool is_file = !fs::exists(path, error) || fs::is_regular_file(path, error);
  return is_file ? path : fs::temp_directory_path() / "headroom-snapshot";
}

// What a person reads beside an entry: "step 3, forward".
std::string remark(const Event& event, const Names& names) {
  if (event.kind == Kind::mark) return std::string(names.text(event.operation));
  std::string text;
  if (event.step != 0) text = "step " + std::to_string(event.step);
  if (event.phase != Phase::unknown)
    text += (text.empty() ? "" : ", ") + std::string(to_string(event.phase));
  return text;
}

// The stacks of one part of the file, each written once.
class Stacks {
 public:
  explicit Stacks(const Names& names) : names_(names) {}

  void put(PickleEmitter& pickle, Name module, Name operation) {
    const std::uint64_t key = std::uint64_t{module} << 32 | operation;
    if (const auto known = numbers_.find(key); known != numbers_.end())
      return pickle.recall(known->second);
    pickle.open_list();
    pickle.open_part();
    if (operation != 0) frame(pickle, pickle::kOperatorFrame, names_.text(operation));
    // "h.3.attn", then "h.3", then "h".
    for (std::string_view path = names_.text(module); !path.empty();) {
      frame(pickle, pickle::kModuleFrame, path);
      const std::size_t dot = path.rfind('.');
      path = dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
    }
    pickle.close_part();
    numbers_.emplace(key, pickle.remember());
  }

 private:
  void frame(PickleEmitter& pickle, std::string_view file, std::string_view name) {
    const auto key = std::pair(std::string(file), std::string(name));
    if (const auto known = frames_.find(key); known != frames_.end())
      return pickle.recall(known->second);
    pickle.open_dict();
    pickle.text("filename"), pickle.text(file);
    pickle.text("line"), pickle.integer(0);
    pickle.text("name"), pickle.text(name);
    pickle.close_dict();
    frames_.emplace(key, pickle.remember());
  }

  const Names& names_;
  std::unordered_map<std::uint64_t, std::uint32_t> numbers_;
  std::map<std::pair<std::string, std::string>, std::uint32_t> frames_;
};

// The trace of one device, as a pickled list without its end.
class DeviceTrace {
 public:
  DeviceTrace(const fs::path& beside, const Names& names, MemoNumbers& numbers)
      : names_(names), spool_(beside), pickle_(spool_.bytes(), numbers), stacks_(names) {
    pickle_.open_list();
  }

  void append(const Event& event) {
    if (in_part_ == 0) pickle_.open_part();
    put(event);
    if (++in_part_ == kPart) end_part();
    note_owner(event);
    last_time_ns_ = event.time_ns;
    spool_.settle();
  }

  void finish(OutputFile& file) {
    // memory_viz breaks off when categories are used and none of the entries says "unknown".
    if (categories_ == Categories::without_unknown) {
      Event last;
      last.time_ns = last_time_ns_;
      append(last);
    }
    if (in_part_ > 0) end_part();
    spool_.copy_to(file);
  }

  // Who allocated what is at this address now.
  [[nodiscard]] std::pair<Name, Name> owner(std::uint64_t address) const {
    const auto found = owners_.find(address);
    return found == owners_.end() ? std::pair<Name, Name>() : found->second;
  }

 private:
  enum class Categories : std::uint8_t { none, without_unknown, all };

  void end_part() {
    pickle_.close_part();
    in_part_ = 0;
  }

  void note_owner(const Event& event) {
    if (event.kind == Kind::alloc) owners_[event.address] = {event.module, event.operation};
    if (event.kind == Kind::free_completed) owners_.erase(event.address);
  }

  void put(const Event& event) {
    const bool is_mark = event.kind == Kind::mark;
    const bool is_snapshot =
        is_mark && (names_.text(event.operation) == "snapshot" || event.operation == 0);
    pickle_.open_dict();
    pickle_.text("action");
    pickle_.text(is_snapshot ? "snapshot" : is_mark ? "user_defined" : to_string(event.kind));
    pickle_.text(event.kind == Kind::oom ? "device_free" : "addr");
    pickle_.integer(is_mark ? 0 : readable(event.address));
    pickle_.text("size"), pickle_.integer(event.bytes.count);
    pickle_.text("stream"), pickle_.integer(event.stream);
    pickle_.text("time_us"), pickle_.integer(event.time_ns / 1000);
    pickle_.text("compile_context"), pickle_.text("N/A");
    pickle_.text("user_metadata"), pickle_.text(remark(event, names_));
    pickle_.text("frames"), stacks_.put(pickle_, event.module, is_mark ? 0 : event.operation);
    put_more(event);
    pickle_.close_dict();
  }

  // Fields that only some entries have. A category once used is said of all that follow.
  void put_more(const Event& event) {
    const bool known = event.category != Category::unknown;
    if (known && categories_ == Categories::none) categories_ = Categories::without_unknown;
    if (categories_ != Categories::none) {
      if (!known) categories_ = Categories::all;
      pickle_.text("category"), pickle_.text(to_string(event.category));
    }
    if (event.step != 0) pickle_.text("step"), pickle_.integer(event.step);
    if (event.phase != Phase::unknown) pickle_.text("phase"), pickle_.text(to_string(event.phase));
  }

  const Names& names_;
  detail::Spool spool_;
  PickleEmitter pickle_;
  Stacks stacks_;
  int in_part_ = 0;
  std::int64_t last_time_ns_ = 0;
  Categories categories_ = Categories::none;
  std::unordered_map<std::uint64_t, std::pair<Name, Name>> owners_;
};

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
    while (traces.size() <= device)
      traces.push_back(std::make_unique<DeviceTrace>(beside, names, numbers));
    return *traces[device];
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
  Stacks stacks{names};
  std::uint64_t written = 0, left_out = 0;
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
  pickle.text("address"), pickle.integer(readable(segment.address));
  pickle.text("total_size"), pickle.integer(segment.size.count);
  pickle.text("allocated_size");
  pickle.integer(sum(segment, [&](const auto& b) { return is_allocated(b) ? b.size : Bytes{}; }));
  pickle.text("active_size");
  pickle.integer(sum(segment, [&](const auto& b) { return is_active(b) ? b.size : Bytes{}; }));
  pickle.text("requested_size");
  pickle.integer(sum(segment, [&](const auto& b) { return is_active(b) ? b.requested : Bytes{}; }));
  pickle.text("stream"), pickle.integer(segment.stream);
  pickle.text("segment_type"), pickle.text(segment.is_large ? "large" : "small");
  pickle.text("segment_pool_id"), pickle.pair(0, readable(segment.pool));
  pickle.text("is_expandable"), pickle.boolean(segment.is_expandable);
  pickle.text("frames"), stacks.put(pickle, 0, 0);
  pickle.text("blocks"), put_blocks(segment, device);
  pickle.close_dict();
}

void SnapshotWriter::File::put_blocks(const SegmentInfo& segment, std::uint16_t device) {
  pickle.open_list();
  for (const BlockInfo& block : segment.blocks) {
    const bool is_free = block.state == BlockInfo::State::free;
    const auto [module, operation] = is_free || device >= traces.size()
                                         ? std::pair<Name, Name>()
                                         : traces[device]->owner(block.address);
    pickle.open_part();
    pickle.open_dict();
    pickle.text("address"), pickle.integer(readable(block.address));
    pickle.text("size"), pickle.integer(block.size.count);
    pickle.text("requested_size"), pickle.integer(block.requested.count);
    pickle.text("state"), pickle.text(state_of(block));
    pickle.text("frames"), stacks.put(pickle, module, operation);
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
  if (!is_of_snapshots(event.kind)) {
    ++file_->left_out;
    return;
  }
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

std::uint64_t SnapshotWriter::left_out() const {
  return file_->left_out;
}

bool write_snapshot(const fs::path& path, Reader& trace,
                    const std::vector<SegmentsOfDevice>& at_end, const std::string& settings,
                    const std::stop_token& stop) {
  SnapshotWriter writer(path, trace.names());
  std::uint64_t count = 0;
  for (Event event; trace.next(event);) {
    if (++count % kEventsBetweenLooks == 0 && stop.stop_requested()) return false;
    writer.append(event);
  }
  writer.finish(at_end, settings);
  return true;
}

}  // namespace headroom::trace

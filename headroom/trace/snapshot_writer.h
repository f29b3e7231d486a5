// Writes a memory snapshot as PyTorch's torch.cuda.memory._dump_snapshot would, so that its viewer
// (pytorch.org/memory_viz, torch/cuda/_memory_viz.py) shows a trace (docs/formats/snapshot.md).
//
//   SnapshotWriter writer("out.pickle", names);
//   writer.append(event);  // in the order of time; names in it are numbers of `names`
//   writer.finish({{.device = 0, .segments = card.snapshot()}}, "expandable_segments:True");
//
// The viewer reckons back from the state at the end: events and segments must belong together, as
// those of one replay do. A module's path and the operator become the stack of an entry:
// "operator:0: aten::mm", "module:0:h.3.attn", "module:0:h.3", "module:0:h".
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "headroom/allocator/caching_allocator.h"
#include "headroom/trace/reader.h"

namespace headroom::trace {

struct SegmentsOfDevice {
  std::uint16_t device = 0;
  std::vector<allocator::SegmentInfo> segments;
};

class SnapshotWriter {
 public:
  // `names` must live as long and keeps its numbers. All functions throw WriteError.
  SnapshotWriter(const std::filesystem::path& path, const Names& names);
  ~SnapshotWriter();  // without finish() the target is as it was
  SnapshotWriter(const SnapshotWriter&) = delete;
  SnapshotWriter& operator=(const SnapshotWriter&) = delete;

  // Events a snapshot cannot say (record_stream, settings, pools...) are left out. UsageError for
  // an address that viewers cannot read, 2^63 or more; InputError for a device above 1023.
  void append(const Event& event);
  // `settings` as PYTORCH_CUDA_ALLOC_CONF; UsageError for a text that PyTorch would refuse.
  void finish(const std::vector<SegmentsOfDevice>& at_end, const std::string& settings);

  [[nodiscard]] std::uint64_t written() const;

 private:
  struct File;
  std::unique_ptr<File> file_;
};

}  // namespace headroom::trace

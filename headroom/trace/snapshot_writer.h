// Writes a memory snapshot in the form of PyTorch's torch.cuda.memory._dump_snapshot, so that
// PyTorch's viewer (pytorch.org/memory_viz, torch/cuda/_memory_viz.py) can show a trace
// (docs/formats/snapshot.md).
//
//   SnapshotWriter writer("out.pickle", names);
//   writer.append(event);  // in the order of time; names in it are numbers of `names`
//   writer.finish({{.device = 0, .segments = card.snapshot()}}, "expandable_segments:True");
//
// The viewer computes backwards from the state at the end, so events and segments must match, like
// those of one replay. The module's path and the operator become the stack of an entry:
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
  // `names` must outlive the writer and keep its numbers. All functions throw WriteError.
  SnapshotWriter(const std::filesystem::path& path, const Names& names);
  ~SnapshotWriter();  // without finish() the target file is unchanged
  SnapshotWriter(const SnapshotWriter&) = delete;
  SnapshotWriter& operator=(const SnapshotWriter&) = delete;

  // Ignores events that a snapshot cannot express (record_stream, settings, pools...). Throws
  // UsageError for an address of 2^63 or more, which viewers cannot read, and InputError for a
  // device above 1023.
  void append(const Event& event);
  // `settings` as PYTORCH_CUDA_ALLOC_CONF; throws UsageError for a text that PyTorch would refuse.
  void finish(const std::vector<SegmentsOfDevice>& at_end, const std::string& settings);

  [[nodiscard]] std::uint64_t written() const;

 private:
  struct File;
  std::unique_ptr<File> file_;
};

}  // namespace headroom::trace

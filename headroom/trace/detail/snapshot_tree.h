// A PyTorch memory snapshot as typed values: gives the dicts of the pickle their meaning, without
// deriving the state before or between events. docs/formats/snapshot.md lists the fields.
//
//   const SnapshotTree snapshot(unpickle(input), input.name());
//   for (const Value trace : snapshot.traces()) ...
//
// Fields that a snapshot may leave out are optional here. A missing required field ends in
// InputError with the offset of the dict.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/trace/detail/pickle_tree.h"

namespace headroom::trace::pickle {

struct Entry {
  Kind kind = Kind::mark;
  std::string_view action;
  std::uint64_t address = 0;  // oom: the bytes free on the card
  Bytes bytes;
  std::int64_t stream = 0;  // the pointer, as a number
  std::int64_t time_us = 0;
  Value frames;               // Type::none if there is no list
  std::string_view category;  // added by torch.profiler and by Headroom
  std::string_view compile_context;
  std::string_view user_metadata;
  std::int64_t step = 0;  // this and the next: added only by Headroom
  std::string_view phase;
};

struct SnapshotBlock {
  std::uint64_t address = 0;
  Bytes size;
  Bytes requested;
  bool active = false;
  bool awaiting_free = false;
  Value frames;
};

struct SnapshotSegment {
  std::uint64_t address = 0;
  Bytes size;
  std::int64_t stream = 0;
  std::uint16_t device = 0;
  bool expandable = false;
  Value blocks;
};

struct Annotation {
  std::string_view name;
  std::string_view stage;
  std::uint16_t device = 0;
  std::int64_t time_us = 0;
};

struct Frame {
  std::string_view filename;
  std::string_view name;
  std::int64_t line = 0;
};

class SnapshotTree {
 public:
  SnapshotTree(Tree tree, std::string file);
  SnapshotTree(const SnapshotTree&) = delete;
  SnapshotTree& operator=(const SnapshotTree&) = delete;

  [[nodiscard]] const std::vector<Value>& traces() const { return traces_; }
  [[nodiscard]] const std::vector<SnapshotSegment>& segments() const { return segments_; }
  [[nodiscard]] std::vector<SnapshotBlock> blocks(const SnapshotSegment& segment) const;
  [[nodiscard]] Items annotations() const { return tree_.items(annotations_); }
  // Number of devices: enough for every trace and for every segment's device.
  [[nodiscard]] std::size_t devices() const { return devices_; }
  // As PYTORCH_CUDA_ALLOC_CONF: the text that was set, else one made from the other fields.
  [[nodiscard]] std::string settings() const;

  [[nodiscard]] Entry entry(Value dict) const;
  [[nodiscard]] Annotation annotation(Value dict) const;
  [[nodiscard]] Frame frame(Value dict) const;
  [[nodiscard]] const Tree& tree() const { return tree_; }

 private:
  // The keys and words of snapshots, as values of the tree.
  struct Keys {
    Tree& tree;
    Value conf = key("PYTORCH_CUDA_ALLOC_CONF"), segments = key("segments");
    Value device_traces = key("device_traces"), allocator_settings = key("allocator_settings");
    Value external_annotations = key("external_annotations"), action = key("action");
    Value addr = key("addr"), device_free = key("device_free"), size = key("size");
    Value stream = key("stream"), time_us = key("time_us"), frames = key("frames");
    Value category = key("category"), compile_context = key("compile_context");
    Value user_metadata = key("user_metadata"), step = key("step"), phase = key("phase");
    Value device = key("device"), address = key("address"), total_size = key("total_size");
    Value is_expandable = key("is_expandable"), blocks = key("blocks"), state = key("state");
    Value requested_size = key("requested_size"), history = key("history");
    Value real_size = key("real_size"), name = key("name"), stage = key("stage");
    Value filename = key("filename"), line = key("line");
    std::vector<Value> actions = {};  // by Kind

    Value key(std::string_view text) { return tree.make_text(Type::text, text); }
  };

  void read_traces(Value list);
  void read_segments(Value list);
  SnapshotSegment segment(Value dict);
  SnapshotBlock block(Value dict, std::uint64_t address) const;
  [[nodiscard]] std::uint16_t device(Value dict) const;
  // A field that is present but has the wrong type is a fault, optional or not.
  [[nodiscard]] std::optional<std::int64_t> integer(Value dict, Value key) const;
  [[nodiscard]] std::int64_t needed(Value dict, Value key) const;
  [[nodiscard]] Bytes size(Value dict, Value key) const;
  [[nodiscard]] std::string_view text(Value dict, Value key) const;
  void must_be_new(Value list, std::vector<std::uint64_t>& seen) const;
  [[noreturn]] void fault(Value where, const std::string& expected,
                          const std::string& received) const;

  Tree tree_;
  std::string file_;
  Keys keys_;
  std::vector<Value> traces_;
  std::vector<SnapshotSegment> segments_;
  Value annotations_;
  Value settings_;
  std::size_t devices_ = 0;
};

}  // namespace headroom::trace::pickle

#include "headroom/trace/detail/snapshot_tree.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "headroom/allocator/settings.h"
#include "headroom/trace/detail/fault.h"

namespace headroom::trace::pickle {

SnapshotTree::SnapshotTree(Tree tree, std::string file)
    : tree_(std::move(tree)), file_(std::move(file)), keys_{tree_} {
  // All kinds up to oom are actions of PyTorch.
  for (auto kind = Kind::alloc; kind <= Kind::oom;
       kind = static_cast<Kind>(static_cast<int>(kind) + 1))
    keys_.actions.push_back(keys_.key(to_string(kind)));
  const Value root = tree_.root;
  if (root.type() == Type::list) {  // torch.cuda.memory_snapshot()
    read_segments(root);
    return;
  }
  if (root.type() != Type::dict)
    fault(root, "a memory snapshot (a dict with segments and device_traces)", "something else");
  const auto segments = tree_.find(root, keys_.segments);
  const auto traces = tree_.find(root, keys_.device_traces);
  if (!segments && !traces) fault(root, "a memory snapshot", "a dict without segments");
  if (traces) read_traces(*traces);
  if (segments) read_segments(*segments);
  annotations_ = tree_.find(root, keys_.external_annotations).value_or(Value());
  settings_ = tree_.find(root, keys_.allocator_settings).value_or(Value());
}

void SnapshotTree::fault(Value where, const std::string& expected,
                         const std::string& received) const {
  detail::fault(file_, tree_.offset(where), expected, received,
                "a snapshot as torch.cuda.memory._dump_snapshot writes it");
}

// If one list could appear in two places, a small file could describe a lot: its size would no
// longer bound work and memory.
void SnapshotTree::must_be_new(Value list, std::vector<std::uint64_t>& seen) const {
  if (std::find(seen.begin(), seen.end(), list.word()) != seen.end())
    fault(list, "a list of its own for each device", "the same list twice");
  seen.push_back(list.word());
}

void SnapshotTree::read_traces(Value list) {
  if (tree_.size(list) > detail::kMostDevices)
    fault(list, "at most " + std::to_string(detail::kMostDevices) + " devices",
          std::to_string(tree_.size(list)));
  std::vector<std::uint64_t> seen;
  Value trace;
  for (Items items = tree_.items(list); items.next(trace);) {
    if (trace.type() != Type::list) fault(list, "a list of entries for each device", "none");
    must_be_new(trace, seen);
    traces_.push_back(trace);
  }
  devices_ = traces_.size();
}

void SnapshotTree::read_segments(Value list) {
  if (list.type() != Type::list) fault(list, "a list of segments", "something else");
  std::unordered_set<std::uint64_t> seen;
  Value dict;
  for (Items items = tree_.items(list); items.next(dict);) {
    segments_.push_back(segment(dict));
    const SnapshotSegment& latest = segments_.back();
    if (!seen.insert(latest.blocks.word()).second)
      fault(dict, "a list of its own for the blocks of each segment", "the same list twice");
    devices_ = std::max<std::size_t>(devices_, latest.device + 1u);
  }
}

SnapshotSegment SnapshotTree::segment(Value dict) {
  SnapshotSegment result;
  result.address = static_cast<std::uint64_t>(needed(dict, keys_.address));
  result.size = size(dict, keys_.total_size);
  result.stream = integer(dict, keys_.stream).value_or(0);
  result.device = device(dict);
  result.expandable = integer(dict, keys_.is_expandable).value_or(0) != 0;
  result.blocks = tree_.find(dict, keys_.blocks).value_or(Value());
  if (result.blocks.type() != Type::list) fault(dict, "a segment with a list of blocks", "none");
  return result;
}

std::vector<SnapshotBlock> SnapshotTree::blocks(const SnapshotSegment& segment) const {
  std::vector<SnapshotBlock> result;
  std::uint64_t address = segment.address;
  Value dict;
  for (Items items = tree_.items(segment.blocks); items.next(dict);) {
    result.push_back(block(dict, address));
    address = result.back().address + static_cast<std::uint64_t>(result.back().size.count);
  }
  return result;
}

// Before PyTorch 2.1 a block had no address, and its request and frames were in a "history".
SnapshotBlock SnapshotTree::block(Value dict, std::uint64_t address) const {
  SnapshotBlock result;
  result.address = static_cast<std::uint64_t>(
      integer(dict, keys_.address).value_or(static_cast<std::int64_t>(address)));
  result.size = size(dict, keys_.size);
  const std::string_view state = text(dict, keys_.state);
  result.awaiting_free = state == "active_pending_free" || state == "active_awaiting_free";
  result.active = result.awaiting_free || state == "active_allocated";
  Value latest;
  const auto history = tree_.find(dict, keys_.history);
  const bool is_old = history && tree_.items(*history).next(latest);
  const Value from = is_old ? latest : dict;
  const Value key = is_old ? keys_.real_size : keys_.requested_size;
  result.requested = tree_.find(from, key) ? size(from, key) : result.size;
  result.frames = tree_.find(from, keys_.frames).value_or(Value());
  return result;
}

Entry SnapshotTree::entry(Value dict) const {
  if (dict.type() != Type::dict) fault(dict, "a dict for each entry of a trace", "something else");
  Entry result;
  const Value action = tree_.find(dict, keys_.action).value_or(Value());
  if (action.type() != Type::text) fault(dict, "an entry with an action", "none");
  const auto known = std::find(keys_.actions.begin(), keys_.actions.end(), action);
  result.action = tree_.text(action);
  result.time_us = integer(dict, keys_.time_us).value_or(0);
  result.user_metadata = text(dict, keys_.user_metadata);
  result.frames = tree_.find(dict, keys_.frames).value_or(Value());
  result.step = integer(dict, keys_.step).value_or(0);
  result.phase = text(dict, keys_.phase);
  if (known == keys_.actions.end()) return result;
  result.kind = static_cast<Kind>(known - keys_.actions.begin());
  const bool is_oom = result.kind == Kind::oom;
  result.address =
      static_cast<std::uint64_t>(needed(dict, is_oom ? keys_.device_free : keys_.addr));
  result.bytes = size(dict, keys_.size);
  result.stream = integer(dict, keys_.stream).value_or(0);
  result.category = text(dict, keys_.category);
  result.compile_context = text(dict, keys_.compile_context);
  return result;
}

Annotation SnapshotTree::annotation(Value dict) const {
  if (dict.type() != Type::dict) fault(dict, "a dict for each annotation", "something else");
  return {.name = text(dict, keys_.name),
          .stage = text(dict, keys_.stage),
          .device = device(dict),
          .time_us = integer(dict, keys_.time_us).value_or(0)};
}

Frame SnapshotTree::frame(Value dict) const {
  return {.filename = text(dict, keys_.filename),
          .name = text(dict, keys_.name),
          .line = tree_.integer(tree_.find(dict, keys_.line).value_or(Value())).value_or(0)};
}

// ---- Fields ----

std::optional<std::int64_t> SnapshotTree::integer(Value dict, Value key) const {
  const auto found = tree_.find(dict, key);
  if (!found || found->type() == Type::none) return {};
  const auto value = tree_.integer(*found);
  if (!value)
    fault(dict, "a whole number of 64 bits as " + std::string(tree_.text(key)), "something else");
  return value;
}

std::int64_t SnapshotTree::needed(Value dict, Value key) const {
  const auto value = integer(dict, key);
  if (!value) fault(dict, "a dict with " + std::string(tree_.text(key)), "one without");
  return *value;
}

Bytes SnapshotTree::size(Value dict, Value key) const {
  const std::int64_t bytes = needed(dict, key);
  if (bytes < 0) fault(dict, "a size as " + std::string(tree_.text(key)), std::to_string(bytes));
  return Bytes{bytes};
}

std::string_view SnapshotTree::text(Value dict, Value key) const {
  return tree_.text(tree_.find(dict, key).value_or(Value()));
}

// A host annotation has device -1.
std::uint16_t SnapshotTree::device(Value dict) const {
  const std::int64_t number = std::max<std::int64_t>(0, integer(dict, keys_.device).value_or(0));
  if (number >= detail::kMostDevices)
    fault(dict, "a device below " + std::to_string(detail::kMostDevices), std::to_string(number));
  return static_cast<std::uint16_t>(number);
}

// ---- Settings ----

std::string SnapshotTree::settings() const {
  if (const auto set = text(settings_, keys_.conf); !set.empty()) return std::string(set);
  const auto field = [&](std::string_view name) {
    Value found;
    tree_.each_key(settings_, [&](Value key, Value value) {
      if (tree_.text(key) == name) found = value;
    });
    return found;
  };
  allocator::Settings settings;
  const std::int64_t split = tree_.integer(field("max_split_size")).value_or(-1);
  if (split > 0 && split <= allocator::kLargestSize.count) settings.max_split_size = Bytes{split};
  settings.garbage_collection_threshold =
      tree_.number(field("garbage_collection_threshold")).value_or(0);
  settings.expandable_segments = tree_.integer(field("expandable_segments")).value_or(0) != 0;
  tree_.each_key(field("roundup_power2_divisions"), [&](Value key, Value value) {
    for (std::size_t i = 0; i < settings.roundup_power2_divisions.size(); ++i)
      if (tree_.text(key) == std::to_string(1u << i))
        settings.roundup_power2_divisions[i] =
            static_cast<std::uint64_t>(std::max<std::int64_t>(0, tree_.integer(value).value_or(0)));
  });
  return to_string(settings);
}

}  // namespace headroom::trace::pickle

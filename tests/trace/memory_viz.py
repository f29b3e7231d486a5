"""Does PyTorch's viewer understand a snapshot? Loads it with Python's pickle, looks at every field
that the viewer reads, runs torch/cuda/_memory_viz.py of the wheel over it, and reckons back through
the history as the page pytorch.org/memory_viz does.

    memory_viz.py SNAPSHOT TORCH_DIR

Prints what the viewer made of it and what is wrong, as JSON; ends with 1 if anything is.
"""

import contextlib
import importlib.util
import io
import json
import pickle
import pickletools
import sys

INTEGER, TEXT, LIST, BOOLEAN, NUMBER = int, str, list, bool, float

# The fields that each part must have, and their reader. py: torch/cuda/_memory_viz.py of torch
# 2.11; js:
# the page's torch/utils/viz/MemoryViz.js and process_alloc_data.js, of PyTorch's main branch since
# these are two files.
SEGMENT = {
    "device": (INTEGER, "js MemoryView, process_alloc_data, snapshot_change"),
    "address": (INTEGER, "py segments, compare, trace; js MemoryView, find_pool_id"),
    "total_size": (INTEGER, "py segsum, compare, trace; js MemoryView, find_pool_id"),
    "allocated_size": (INTEGER, "py trace.find_segment"),
    "active_size": (INTEGER, "torch.cuda.memory._snapshot's Segment"),
    "requested_size": (INTEGER, "memory_snapshot.cpp"),
    "stream": (INTEGER, "py segments, memory, segsum; js annotate_snapshot"),
    "segment_type": (TEXT, "torch.cuda.memory._snapshot's Segment"),
    "segment_pool_id": (tuple, "js find_pool_id, isPrivatePoolId"),
    "is_expandable": (BOOLEAN, "memory_snapshot.cpp"),
    "frames": (LIST, "js MemoryView"),
    "blocks": (LIST, "py segsum, _write_blocks; js MemoryView, annotate_snapshot"),
}
BLOCK = {
    "address": (INTEGER, "js process_alloc_data"),
    "size": (INTEGER, "py calc_active, segsum, _write_blocks; js annotate_snapshot"),
    "requested_size": (INTEGER, "py _block_extra; js MemoryView, process_alloc_data"),
    "state": (TEXT, "py calc_active, segsum, _write_blocks; js MemoryView, process_alloc_data"),
    "frames": (LIST, "py _block_extra; js MemoryView, annotate_snapshot"),
}
ENTRY = {
    "action": (TEXT, "py trace, filter_alloc_free_pairs; js formatEvent, annotate_snapshot"),
    "size": (INTEGER, "py trace; js formatEvent, process_alloc_data"),
    "stream": (INTEGER, "js formatEvent, annotate_snapshot, context_for_id"),
    "time_us": (INTEGER, "js context_for_id"),
    "compile_context": (TEXT, "js context_for_id"),
    "user_metadata": (TEXT, "js eventStack, format_user_metadata"),
    "frames": (LIST, "js annotate_snapshot, format_frames"),
}
FRAME = {
    "filename": (TEXT, "py _frame_fmt, _frame_filter; js frameFilter, format_frames"),
    "line": (INTEGER, "py _frame_fmt; js format_frames"),
    "name": (TEXT, "py _frame_fmt, _frame_filter; js frameFilter, format_frames"),
}
SETTINGS = {  # js create_settings_view shows all; torch writes these
    "PYTORCH_CUDA_ALLOC_CONF": (TEXT, "memory_snapshot.cpp"),
    "max_split_size": (INTEGER, "memory_snapshot.cpp"),
    "garbage_collection_threshold": (NUMBER, "memory_snapshot.cpp"),
    "expandable_segments": (BOOLEAN, "memory_snapshot.cpp"),
    "pinned_num_register_threads": (INTEGER, "memory_snapshot.cpp"),
    "release_lock_on_cudamalloc": (BOOLEAN, "memory_snapshot.cpp"),
    "pinned_use_cuda_host_register": (BOOLEAN, "memory_snapshot.cpp"),
    "graph_capture_record_stream_reuse": (BOOLEAN, "memory_snapshot.cpp"),
    "roundup_power2_divisions": (dict, "memory_snapshot.cpp"),
}
ACTIONS = {
    "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map",
    "segment_unmap", "oom", "snapshot", "user_defined",
}
STATES = {"active_allocated", "active_pending_free", "inactive"}

# js unpickleData has these and no others.
READABLE = {
    "APPEND", "APPENDS", "BINFLOAT", "BINGET", "BININT", "BININT1", "BININT2", "BINPUT",
    "BINUNICODE", "DICT", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "FRAME", "LIST", "LONG1",
    "LONG_BINGET", "LONG_BINPUT", "MARK", "MEMOIZE", "NEWFALSE", "NEWTRUE", "NONE", "PROTO",
    "SETITEM", "SETITEMS", "SHORT_BINUNICODE", "STOP", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
}

wrong = []


def must(condition, text):
    if not condition:
        wrong.append(text)


def check(value, fields, where):
    for field, (kind, reader) in fields.items():
        must(type(value.get(field)) is kind,
             f"{where}: {field} is {value.get(field)!r}, read by {reader}")


def check_operations(data):
    for operation, argument, position in pickletools.genops(data):
        must(operation.name in READABLE, f"byte {position}: {operation.name} is not read")
        if operation.name == "LONG1":  # more than 8 bytes are a BigInt, or an error in older ones
            must(-(2**63) <= argument < 2**63, f"byte {position}: {argument} is too large")
        if operation.name == "PROTO":
            must(2 <= argument <= 4, f"byte {position}: protocol {argument}")


def check_fields(snapshot):
    for segment in snapshot["segments"]:
        where = f"segment {segment.get('address')}"
        check(segment, SEGMENT, where)
        must(segment["segment_type"] in ("small", "large"), f"{where}: segment_type")
        for block in segment["blocks"]:
            check(block, BLOCK, f"{where}, block {block.get('address')}")
            must(block["state"] in STATES, f"{where}: {block['state']}")
            for frame in block["frames"]:
                check(frame, FRAME, where)
    for trace in snapshot["device_traces"]:
        for number, entry in enumerate(trace):
            where = f"entry {number}"
            check(entry, ENTRY, where)
            must(entry["action"] in ACTIONS, f"{where}: {entry['action']}")
            place = "device_free" if entry["action"] == "oom" else "addr"
            must(type(entry.get(place)) is int, f"{where}: {place}")
            for frame in entry["frames"]:
                check(frame, FRAME, where)
    check(snapshot["allocator_settings"], SETTINGS, "allocator_settings")
    must(snapshot["external_annotations"] == [], "external_annotations")


def check_categories(snapshot):
    # js annotate_snapshot: a list of categories without "unknown" ends in a misspelt name.
    used = {e["category"] for trace in snapshot["device_traces"] for e in trace if "category" in e}
    must(not used or "unknown" in used, f"categories {sorted(used)} without unknown")
    return sorted(used)


class Memory:
    """js MemoryView.simulate_memory: from the end back to the beginning."""

    def __init__(self, snapshot, device):
        self.segments = {}
        self.blocks = {}
        for segment in snapshot["segments"]:
            if segment["device"] != device:
                continue
            self.segments[segment["address"]] = segment["total_size"]
            for block in segment["blocks"]:
                if block["state"] != "inactive":
                    self.blocks[block["address"]] = block["requested_size"]
        self.check("at the end")

    def holds(self, address, size):
        return any(a <= address and address + size <= a + s for a, s in self.segments.items())

    def check(self, where):
        for address in self.blocks:
            must(self.holds(address, 1), f"{where}: block {address} lies in no segment")

    def add_segment(self, address, size):
        self.segments[address] = size
        for first in sorted(self.segments):  # neighbours become one
            size = self.segments.get(first)
            while size is not None and first + size in self.segments:
                size += self.segments.pop(first + size)
                self.segments[first] = size

    def remove_segment(self, address, size, where):
        must(self.holds(address, size), f"{where}: no such segment")
        for first, length in list(self.segments.items()):
            if first <= address and address + size <= first + length:
                del self.segments[first]
                if first < address:
                    self.segments[first] = address - first
                if address + size < first + length:
                    self.segments[address + size] = first + length - address - size

    def undo(self, entry, where):
        action, address, size = entry["action"], entry.get("addr"), entry["size"]
        if action == "alloc":
            must(address in self.blocks, f"{where}: no such block")
            self.blocks.pop(address, None)
        elif action == "free_completed":
            self.blocks[address] = size
        elif action == "free_requested":
            must(address in self.blocks, f"{where}: no such block")
        elif action in ("segment_free", "segment_unmap"):
            self.add_segment(address, size)
        elif action in ("segment_alloc", "segment_map"):
            self.remove_segment(address, size, where)
        self.check(where)


def reckon_back(snapshot):
    left = []
    for device, trace in enumerate(snapshot["device_traces"]):
        memory = Memory(snapshot, device)
        for number in range(len(trace) - 1, -1, -1):
            memory.undo(trace[number], f"entry {number}")
        left.append([len(memory.segments), len(memory.blocks)])
    return left


def run_viewer(snapshot, torch_dir):
    path = f"{torch_dir}/cuda/_memory_viz.py"
    spec = importlib.util.spec_from_file_location("_memory_viz", path)
    viewer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(viewer)
    lines = lambda text: text  # instead of a picture
    return {
        "segsum": viewer.segsum(snapshot),
        "trace": viewer.trace(snapshot),
        "segments": viewer.segments(snapshot, format_flamegraph=lines),
        "memory": viewer.memory(snapshot, format_flamegraph=lines),
        "compare": viewer.compare([], snapshot["segments"], format_flamegraph=lines),
        "trace_plot": len(viewer.trace_plot(snapshot)),
        "segment_plot": len(viewer.segment_plot(snapshot)),
        "filtered": len(viewer.filter_alloc_free_pairs(snapshot)["device_traces"]),
    }


def main():
    with open(sys.argv[1], "rb") as file:
        data = file.read()
    check_operations(data)
    snapshot = pickle.loads(data)
    check_fields(snapshot)
    result = {
        "entries": [len(trace) for trace in snapshot["device_traces"]],
        "segments": len(snapshot["segments"]),
        "categories": check_categories(snapshot),
        "at_the_beginning": reckon_back(snapshot),
    }
    with contextlib.redirect_stdout(io.StringIO()):  # compare() prints
        result["viewer"] = run_viewer(snapshot, sys.argv[2])
    json.dump({"wrong": wrong[:20], **result}, sys.stdout)
    sys.exit(1 if wrong else 0)


main()

#!/usr/bin/env python3
"""Writes small snapshot pickles, one for each protocol, into a folder.

    write_pickles.py tests/fuzz/corpus
"""
import pathlib
import pickle
import sys

FRAMES = [{"filename": "train.py", "line": 12, "name": "forward"}]
BLOCK = {"address": 0x7F2000000000, "size": 1024, "requested_size": 1000, "state": "active_allocated",
         "frames": FRAMES}
SEGMENT = {"device": 0, "address": 0x7F2000000000, "total_size": 2097152, "allocated_size": 1024,
           "active_size": 1024, "requested_size": 1000, "stream": 0, "segment_type": "small",
           "segment_pool_id": (0, 0), "is_expandable": False, "frames": FRAMES,
           "blocks": [BLOCK, {"address": 0x7F2000000400, "size": 2096128, "requested_size": 0,
                              "state": "inactive", "frames": []}]}


def entry(action, address, size, time_us, **more):
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time_us,
            "compile_context": "N/A", "user_metadata": "", "frames": FRAMES, **more}


SNAPSHOT = {
    "segments": [SEGMENT],
    "device_traces": [[
        entry("segment_alloc", 0x7F2000000000, 2097152, 1760000000000000),
        entry("alloc", 0x7F2000000000, 1000, 1760000000000001),
        entry("alloc", 0x7F2000000400, 5000, 1760000000000002),
        entry("free_requested", 0x7F2000000400, 5000, 1760000000000003),
        entry("free_completed", 0x7F2000000400, 5000, 1760000000000004),
        {"action": "oom", "device_free": 4096, "size": 1 << 33, "stream": 0,
         "time_us": 1760000000000005, "frames": FRAMES},
    ], []],
    "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1,
                           "garbage_collection_threshold": 0.0, "expandable_segments": False,
                           "roundup_power2_divisions": {"1": 0}},
    "external_annotations": [],
}

folder = pathlib.Path(sys.argv[1])
for protocol in range(2, 6):
    data = pickle.dumps(SNAPSHOT, protocol=protocol)
    (folder / f"protocol-{protocol}.pickle").write_bytes(data)
(folder / "cut.pickle").write_bytes(data[:len(data) // 2])
(folder / "calls.pickle").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
(folder / "calls-protocol-2.pickle").write_bytes(b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.")

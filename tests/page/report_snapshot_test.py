#!/usr/bin/env python3
"""The page of a snapshot that PyTorch wrote has the peak of PyTorch's own viewer.

    report_snapshot_test.py HEADROOM SOURCE_DIR

The viewer's total is reckoned here as torch/utils/viz/process_alloc_data.js does: every allocation and
free of the history in order, before them what was there already (a block that is freed without having been
allocated, or that is in a segment at the end and in no event). The snapshots in tests/card/recorded and
tests/trace/recorded are from an H100 and an H200."""
import base64
import gzip
import json
import pathlib
import pickle
import re
import struct
import subprocess
import sys
import tempfile
import unittest

HEADROOM, ROOT = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1))
SNAPSHOTS = sorted([*ROOT.glob("tests/card/recorded/*.pickle.gz"), *ROOT.glob("tests/trace/recorded/*.pickle.gz")])


def total_of_viewer(snapshot, device):
    """The highest total of the viewer's picture "Active Memory Timeline"."""
    live, total, before, most = {}, 0, 0, 0
    freed_later = set()
    for entry in snapshot["device_traces"][device]:
        address = entry.get("addr")
        if entry["action"] == "alloc":
            live[address] = entry["size"]
            total += entry["size"]
        elif entry["action"] in ("free", "free_completed"):
            if address in live:
                total -= live.pop(address)
            else:  # it was there before the history
                freed_later.add(address)
                before += entry["size"]
                total -= entry["size"]
        most = max(most, total)
    for segment in snapshot["segments"]:
        address = segment["address"]
        for block in segment["blocks"]:
            if segment["device"] == device and block["state"] == "active_allocated" and address not in live:
                before += block["requested_size"]
            address += block["size"]
    return before + most


def numbers(data):
    number = scale = 0
    for byte in data:
        number |= (byte & 127) << scale
        scale += 7
        if byte < 128:
            yield number
            number = scale = 0


def page_of(path):
    """What the page holds, and the highest sum of the requested bytes of its tensors."""
    page = pathlib.Path(path).read_text(encoding="utf-8")
    about, columns = (re.search(rf'<script class="{name}"[^>]*>(.*?)</script>', page, re.DOTALL)[1]
                      for name in ("about", "columns"))
    data, parts = gzip.decompress(base64.b64decode(columns)), []
    while data:
        size, = struct.unpack("<I", data[:4])
        parts.append(list(numbers(data[4:4 + size])))
        data = data[4 + size:]
    about = json.loads(about)
    change, birth = [0] * (about["instants"] + 1), 0
    for born, life, size in zip(*parts[:3]):
        birth += born
        change[birth] += size
        change[birth + life if life else about["instants"]] -= size
    most = total = 0
    for step in change[:-1]:
        total += step
        most = max(most, total)
    return about, most


class ReportOfSnapshot(unittest.TestCase):
    def test_has_the_viewers_peak(self):
        self.assertGreaterEqual(len(SNAPSHOTS), 5)
        for path in SNAPSHOTS:
            with self.subTest(path.name), tempfile.TemporaryDirectory() as folder:
                content = gzip.decompress(path.read_bytes())
                file = pathlib.Path(folder, "snapshot.pickle")
                file.write_bytes(content)
                subprocess.run([HEADROOM, "trace", "report", file, "--out", folder + "/page.html"], check=True,
                               stdout=subprocess.DEVNULL)
                about, most = page_of(folder + "/page.html")
                self.assertEqual(most, total_of_viewer(pickle.loads(content), about["device"]))

    def test_is_coloured_by_the_lines_of_the_program(self):
        path = ROOT / "tests/trace/recorded/gpt_h100.pickle.gz"
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "snapshot.pickle")
            file.write_bytes(gzip.decompress(path.read_bytes()))
            subprocess.run([HEADROOM, "trace", "report", file, "--out", folder + "/page.html"], check=True,
                           stdout=subprocess.DEVNULL)
            about, _ = page_of(folder + "/page.html")
        lines = {about["names"][what[3]] for what in about["whats"]}
        self.assertGreaterEqual(len([line for line in lines if re.search(r"gpt\.py:\d+$", line)]), 10)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Reads what tests/train/tensorboard_writer.cpp writes with TensorBoard's own code (pip install tensorboard).

    tests/train/tensorboard_peer.py build/bin/tensorboard_writer

Exits with 0 if TensorBoard shows what was written, 1 if it shows something else, 77 without TensorBoard.
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

try:
    from tensorboard.backend.event_processing import plugin_event_multiplexer
    from tensorboard.util import tensor_util
except ImportError as missing:
    print(f"skipped: {missing}; try pip install tensorboard")
    sys.exit(77)


def as_float(number):
    """A number as a scalar of 32 bits holds it; text stays. As text, because nan is unlike itself."""
    if isinstance(number, str) and number not in ("inf", "nan"):
        return number
    return str(struct.unpack("f", struct.pack("f", float(number)))[0])


def shown_by_tensorboard(folder):
    runs = plugin_event_multiplexer.EventMultiplexer()
    runs.AddRunsFromDirectory(str(folder)).Reload()
    shown, plugins = {}, {}
    for tag in runs.Runs()["."]["tensors"]:
        plugins[tag] = runs.SummaryMetadata(".", tag).plugin_data.plugin_name
        shown[tag] = []
        for event in runs.Tensors(".", tag):
            value = tensor_util.make_ndarray(event.tensor_proto).item()
            shown[tag].append([event.step, value.decode() if isinstance(value, bytes) else as_float(value)])
    return shown, plugins


def differences(written, folder):
    shown, plugins = shown_by_tensorboard(folder)
    for tag in sorted({*written, *shown}):
        right = [[step, as_float(value)] for step, value in written.get(tag, [])]
        if shown.get(tag) != right:
            yield f"{tag}: expected {right}, TensorBoard shows {shown.get(tag)}"
        plugin = "text" if tag.endswith("/plan") else "scalars"
        if plugins.get(tag) != plugin:
            yield f"{tag}: expected the plugin {plugin}, TensorBoard takes {plugins.get(tag)}"


def main(writer):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        written = json.loads(subprocess.run([writer, name], check=True, capture_output=True).stdout)
        wrong = list(differences(written, folder))
        first = min(folder.iterdir())
        first.write_bytes(first.read_bytes()[:-5])  # as a run leaves it that is killed while it writes
        wrong += [f"with half a record: {one}" for one in differences(written, folder)]
    print("\n".join(wrong) or f"TensorBoard shows all {len(written)} tags as they were written")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

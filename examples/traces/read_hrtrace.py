#!/usr/bin/env python3
"""Reads a Headroom trace without Headroom, by docs/formats/trace.md. It needs only libzstd.

    read_hrtrace.py FILE
"""
import ctypes
import json
import struct
import sys

KINDS = ("alloc free_requested free_completed segment_alloc segment_free segment_map segment_unmap oom "
         "mark record_stream complete_events empty_cache reset_peaks settings begin_pool end_pool "
         "release_pool").split()
CATEGORIES = "unknown parameter buffer input gradient optimizer activation temporary workspace".split()
PHASES = "unknown init forward backward optimizer evaluation data".split()
COLUMNS = [None, "kind", "time_ns", "address", "bytes", "stream", "step", "module", "operation", "device",
           "category", "phase"]
DIFFERENCES = {"time_ns", "address", "step"}

zstd = ctypes.CDLL("libzstd.so.1")
zstd.ZSTD_decompress.restype = ctypes.c_size_t


def unpacked(frame, raw_bytes):
    raw = ctypes.create_string_buffer(raw_bytes)
    if zstd.ZSTD_decompress(raw, ctypes.c_size_t(raw_bytes), frame, ctypes.c_size_t(len(frame))) != raw_bytes:
        sys.exit("damaged part")
    return raw.raw


def check(data, what):
    number = 2166136261
    for byte in data[:-4]:
        number = (number ^ byte) * 16777619 % 2**32
    if number != int.from_bytes(data[-4:], "little"):
        sys.exit(f"damaged {what}")


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def column(name, data, count):
    numbers, at, before = [], 0, 0
    for _ in range(count):
        value, at = varint(data, at)
        if name in DIFFERENCES:
            before = (before + (value >> 1 ^ -(value & 1))) % 2**64
            value = before
        numbers.append(value)
    return numbers


def parts(file):
    prefix = file.read(16)
    check(prefix, "prefix")
    if prefix[:8] != b"\x89HRT\r\n\x1a\n" or struct.unpack("<H", prefix[10:12])[0] > 1:
        sys.exit("no trace of format 1")
    while len(header := file.read(20)) == 20:
        check(header, "header")
        tag, stored_bytes, raw_bytes, events, _ = struct.unpack("<4sIIII", header)
        frame = file.read(stored_bytes)
        if len(frame) < stored_bytes:
            return  # still being written
        yield tag, unpacked(frame, raw_bytes), events


names = [""]
for tag, raw, count in parts(open(sys.argv[1], "rb")):
    if tag == b"HEAD":
        print(json.dumps(json.loads(raw)))
        continue
    _, at = varint(raw, 0)
    new_names, at = varint(raw, at)
    for _ in range(new_names):
        size, at = varint(raw, at)
        names.append(raw[at:at + size].decode())
        at += size
    events = {name: [0] * count for name in COLUMNS[1:]}
    while at < len(raw):
        number, at = varint(raw, at)
        size, at = varint(raw, at)
        if number < len(COLUMNS):
            events[COLUMNS[number]] = column(COLUMNS[number], raw[at:at + size], count)
        at += size
    for event in zip(*events.values()):
        kind, time, address, size, stream, step, module, operation, device, category, phase = event
        print(time, KINDS[kind], f"{address:#x}", size, f"stream {stream}", f"step {step}",
              names[module] or "-", names[operation] or "-", f"device {device}", CATEGORIES[category],
              PHASES[phase])

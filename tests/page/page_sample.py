"""Traces of invented training steps in the form that the report page reads: a few tensors of each
kind with sizes of a real model, so that every part of the page has something to show."""

import base64
import gzip
import json
import pathlib
import random
import struct

PAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "headroom/page/browser"
D3 = pathlib.Path("/usr/share/javascript/d3/d3.min.js")
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
CATEGORIES = ["unknown", "parameter", "buffer", "input", "gradient", "optimizer", "activation", "temporary",
              "workspace"]


class Sample:
    """Records tensors as they are made and freed; keeps the allocator's figures beside them."""

    def __init__(self):
        self.names, self.name_index = [""], {"": 0}
        self.whats, self.what_index = [], {}
        self.born, self.died, self.bytes, self.rounding, self.what = [], [], [], [], []
        self.events, self.reserved, self.times = [], [], []
        self.phases, self.steps, self.marks, self.ooms = [], [], [], []
        self.event = 0
        self.allocated = self.held = self.clock = 0

    def name(self, text):
        if text not in self.name_index:
            self.name_index[text] = len(self.names)
            self.names.append(text)
        return self.name_index[text]

    def tell(self, category, module, operation, line):
        key = (CATEGORIES.index(category), self.name(module), self.name(operation), self.name(line))
        if key not in self.what_index:
            self.what_index[key] = len(self.whats)
            self.whats.append(key)
        return self.what_index[key]

    def happen(self, change):
        self.allocated += change
        if self.allocated > self.held:
            self.event += 1  # the segment's own event
            self.held = -(-self.allocated // (20 * MIB)) * 20 * MIB + 60 * MIB
            self.reserved.append((len(self.events), self.held))
        self.events.append(self.event)
        self.event += 1
        self.clock += 9_000 + abs(change) // 400
        if len(self.events) % 64 == 1:
            self.times.append((len(self.events) - 1, self.clock))

    def make(self, size, category, module="", operation="", line=""):
        rounding = -size % 512
        self.born.append(len(self.events))
        self.died.append(None)
        self.bytes.append(size)
        self.rounding.append(rounding)
        self.what.append(self.tell(category, module, operation, line))
        self.happen(size + rounding)
        return len(self.born) - 1

    def free(self, tensor):
        self.died[tensor] = len(self.events)
        self.happen(-self.bytes[tensor] - self.rounding[tensor])

    def phase(self, name):
        self.phases.append([len(self.events), name])

    def step(self, number):
        self.steps.append([len(self.events), number])


def train(layers=12, width=768, rows=4, length=1024, steps=3, extra=6, seed=1):
    """Steps of a transformer with Adam; `extra` temporaries an operator."""
    draw = random.Random(seed)
    sample = Sample()
    line = {"make": "train.py:31", "forward": "model.py:118", "loss": "train.py:84", "backward": "train.py:85",
            "step": "train.py:86", "data": "train.py:80"}
    matrices = [(".attn.c_attn", 3), (".attn.c_proj", 1), (".mlp.c_fc", 4), (".mlp.c_proj", 4)]
    modules = [(f"transformer.h.{i}{name}", factor) for i in range(layers) for name, factor in matrices]
    sample.phase("init")
    sample.step(0)
    weights = [sample.make(50257 * width * 4, "parameter", "transformer.wte", "aten::empty", line["make"])]
    for module, factor in modules:
        weights.append(sample.make(factor * width * width * 4, "parameter", module, "aten::empty", line["make"]))
        weights.append(sample.make(factor * width * 4 + 4, "parameter", module, "aten::empty", line["make"]))
    sample.make(length * length, "buffer", "transformer.h.0.attn", "aten::tril", line["make"])
    states = []
    token = rows * length
    for step in range(1, steps + 1):
        sample.step(step)
        sample.phase("data")
        if step == 2:
            sample.marks.append([len(sample.events), "epoch 1"])
        inputs = sample.make(token * 8, "input", "", "aten::to", line["data"])
        if step == 1:
            sample.make(8519680, "workspace", "", "cublas", line["forward"])
        sample.phase("forward")
        kept = []
        for module, factor in modules:
            hidden = sample.make(token * width * 4 * factor, "activation", module, "aten::addmm", line["forward"])
            kept.append((module, factor, [hidden]))
            for _ in range(draw.randrange(extra)):
                size = draw.randrange(1, token * width) // 7 * 7 + 1
                sample.free(sample.make(size, "temporary", module, "aten::gelu", line["forward"]))
            if factor == 3:
                kept[-1][2].append(sample.make(rows * 12 * length * length * 2, "activation", module,
                                               "aten::_softmax", line["forward"]))
        sample.phase("backward")
        logits = [sample.make(token * 50257 * 4, "activation", "loss", "aten::_log_softmax", line["loss"])]
        logits.append(sample.make(token * 50257 * 4, "temporary", "loss", "aten::_log_softmax_backward_data",
                                  line["backward"]))
        gradients = [sample.make(50257 * width * 4, "gradient", "transformer.wte", "aten::mm", line["backward"])]
        for tensor in logits:
            sample.free(tensor)
        for module, factor, tensors in reversed(kept):
            first = sample.make(token * width * 4, "temporary", module, "aten::mm", line["backward"])
            gradients.append(sample.make(factor * width * width * 4, "gradient", module, "aten::mm",
                                         line["backward"]))
            gradients.append(sample.make(factor * width * 4 + 4, "gradient", module, "aten::sum", line["backward"]))
            for _ in range(draw.randrange(extra)):
                size = draw.randrange(1, token * width * 2)
                sample.free(sample.make(size, "temporary", module, "aten::gelu_backward", line["backward"]))
            for tensor in tensors:
                sample.free(tensor)
            sample.free(first)
        sample.phase("optimizer")
        if not states:
            for weight in weights:
                for operation in ("aten::zeros_like", "aten::zeros_like"):
                    module = sample.names[sample.whats[sample.what[weight]][1]]
                    states.append(sample.make(sample.bytes[weight], "optimizer", module, operation, line["step"]))
        for weight in weights[:: 1 + len(weights) // 60]:
            sample.free(sample.make(sample.bytes[weight], "temporary", "", "aten::_foreach_sqrt", line["step"]))
        for tensor in gradients:
            sample.free(tensor)
        sample.free(inputs)
    return sample


def lone(sample):
    """As a snapshot of PyTorch's: neither categories nor phases, and the line in place of the module."""
    for index, (_, _, operation, line) in enumerate(sample.whats):
        sample.whats[index] = (0, 0, operation, line)
    sample.phases, sample.steps, sample.times = [], [], []
    return sample


def allocated_by_instant(sample):
    change = [0] * (len(sample.events) + 1)
    for tensor, born in enumerate(sample.born):
        size = sample.bytes[tensor] + sample.rounding[tensor]
        change[born] += size
        if sample.died[tensor] is not None:
            change[sample.died[tensor]] -= size
    total, series = 0, []
    for step in change[:-1]:
        total += step
        series.append(total)
    return series


def segments_at(sample, instant):
    """The living tensors, one after the other, in segments of 2 MiB and of 20 MiB or more. A block is
    (size, tensor); the tensor -1 is free memory."""
    rows, open_rows = [], {}
    for tensor, born in enumerate(sample.born):
        died = sample.died[tensor]
        if born > instant or (died is not None and died <= instant):
            continue
        size = sample.bytes[tensor] + sample.rounding[tensor]
        large = size > MIB
        row = open_rows.get(large)
        if row is None or row["left"] < size:
            whole = 2 * MIB if not large else max(20 * MIB, -(-size // (2 * MIB)) * 2 * MIB)
            row = {"address": 0x7F0000000000 + len(rows) * GIB, "bytes": whole, "blocks": [], "left": whole}
            rows.append(row)
            open_rows[large] = row
        row["blocks"].append((size, tensor))
        row["left"] -= size
        if tensor % 11 == 0 and row["left"] > 64 * KIB:
            hole = row["left"] // 3 // 512 * 512
            row["blocks"].append((hole, -1))
            row["left"] -= hole
    for row in rows:
        left = row.pop("left")
        if left:
            row["blocks"].append((left, -1))
    return rows


def about_of(sample, title, capacity=None, **more):
    series = allocated_by_instant(sample)
    peak = max(range(len(series)), key=series.__getitem__)
    living = [t for t, b in enumerate(sample.born)
              if b <= peak and (sample.died[t] is None or sample.died[t] > peak)]
    reserved = reserved_by_instant(sample)
    top = max(range(len(reserved)), key=reserved.__getitem__)
    about = {
        "schema": 1, "title": title, "made_by": "headroom 0.9.0", "program": "train", "device": 0,
        "times_are_known": bool(sample.times), "settings": "", "torch": "2.11", "capacity_bytes": capacity,
        "events": sample.event, "instants": len(sample.events), "thinned": False, "tensors": len(sample.born),
        "tensors_left_out": 0,
        "peak": {"instant": peak, "allocated_bytes": series[peak],
                 "requested_bytes": sum(sample.bytes[t] for t in living), "reserved_bytes": reserved[peak]},
        "reserved_peak": {"instant": top, "reserved_bytes": reserved[top], "allocated_bytes": series[top]},
        "group_by": "category" if any(w[0] for w in sample.whats) else "line",
        "names": sample.names, "whats": sample.whats, "categories": CATEGORIES, "phases": sample.phases,
        "steps": sample.steps, "marks": sample.marks, "ooms": sample.ooms, "ooms_count": len(sample.ooms), "notes": [],
        "facts": []}
    about.update(more)
    return about


def reserved_by_instant(sample):
    series, held, at = [], 0, 0
    for instant in range(len(sample.events)):
        while at < len(sample.reserved) and sample.reserved[at][0] <= instant:
            held = sample.reserved[at][1]
            at += 1
        series.append(held)
    return series


def varints(numbers):
    out = bytearray()
    for number in numbers:
        while number > 127:
            out.append(number & 127 | 128)
            number >>= 7
        out.append(number)
    return struct.pack("<I", len(out)) + bytes(out)


def deltas(numbers):
    last = 0
    for number in numbers:
        yield number - last
        last = number


def zigzag(number):
    return number * 2 if number >= 0 else -number * 2 - 1


def pairs(rows, code=lambda number: number):
    for instant, value in zip(deltas(row[0] for row in rows), deltas(row[1] for row in rows)):
        yield instant
        yield code(value)


def columns_of(sample, segments=None):
    if segments is None:
        series = allocated_by_instant(sample)
        segments = segments_at(sample, max(range(len(series)), key=series.__getitem__))
    addresses = deltas(row["address"] for row in segments)
    heads = [number for row, after in zip(segments, addresses)
             for number in (after, row["bytes"], 0, 0, row.get("expandable", 0), len(row["blocks"]))]
    blocks = [number for row in segments for size, tensor in row["blocks"] for number in (size, tensor + 1)]
    life = (0 if died is None else died - born for born, died in zip(sample.born, sample.died))
    columns = [deltas(sample.born), life, sample.bytes, sample.rounding, sample.what, deltas(sample.events),
               pairs(sample.reserved, zigzag), pairs(sample.times), heads, blocks]
    return b"".join(varints(column) for column in columns)


def data_of(about, columns):
    text = json.dumps(about, separators=(",", ":")).replace("<", "\\u003c")
    packed = base64.b64encode(gzip.compress(columns, 6, mtime=0)).decode()
    return (f'<script class="about" type="application/json">{text}</script>\n'
            f'<script class="columns" type="text/plain">{packed}</script>\n')


def script_files():
    """The order that report.html names in its first comment."""
    first = (PAGE / "report.html").read_text().split("-->")[0]
    return [word for word in first.replace(",", " ").split() if word.endswith(".js")]


def page_of(title, data):
    script = "\n".join((PAGE / name).read_text() for name in script_files())
    page = (PAGE / "report.html").read_text()
    for mark, text in (("style", (PAGE / "report.css").read_text()), ("d3", D3.read_text()), ("script", script),
                       ("title", title), ("data", data)):
        before, after = page.split("{{" + mark + "}}")
        page = before + text + after
    return page


def diff_of(a, b, parts, reasons=()):
    rows = [dict(zip(("step", "phase", "module", "category", "a_bytes", "b_bytes"), part)) for part in parts]
    for row in rows:
        row["bytes"] = row["b_bytes"] - row["a_bytes"]
    rows.sort(key=lambda row: -abs(row["bytes"]))
    named = [{"name": about["title"], "peak_allocated_bytes": about["peak"]["allocated_bytes"]} for about in (a, b)]
    diff = {"schema": 1, "peak_difference_bytes": sum(row["bytes"] for row in rows), "a": named[0], "b": named[1],
            "parts": rows, "reasons": list(reasons)}
    return f'<script id="diff" type="application/json">{json.dumps(diff)}</script>\n'

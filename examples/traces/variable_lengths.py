#!/usr/bin/env python3
"""Writes a trace: the memory of a made-up training run on sequences of changing length.

    variable_lengths.py > run.txt                     plain events (docs/formats/plain-events.md)
    variable_lengths.py --pickle > snapshot.pickle    as torch.cuda.memory._dump_snapshot writes it

The model has 24 layers. Weights and optimizer state come first, then 12 steps, each with activations, logits and
gradients in proportion to the length. The lengths are fixed, so the trace is always the same.
"""
import pickle
import sys

MIB = 1 << 20
LAYERS, HIDDEN, VOCABULARY, BATCH = 24, 2048, 50304, 8
LENGTHS = [512, 700, 612, 900, 804, 1023, 650, 1100, 777, 1200, 990, 1290]


class Run:
    """The requests of the program to the allocator: (size or None for a free, number, module, operation)."""

    def __init__(self):
        self.calls, self.count = [], 0

    def alloc(self, size, module, operation):
        self.count += 1
        self.calls.append((size, self.count, module, operation))
        return self.count

    def free(self, number):
        self.calls.append((None, number, "", ""))


def training():
    run = Run()
    for layer in range(LAYERS):
        for part, factor in (("attn", 4), ("mlp", 8)):
            run.alloc(factor * HIDDEN * HIDDEN * 2, f"h.{layer}.{part}", "aten::empty")
    for layer in range(LAYERS):
        run.alloc(12 * HIDDEN * HIDDEN * 8, f"h.{layer}", "aten::zeros_like")
    for length in LENGTHS:
        step(run, BATCH * length)
    return run.calls


def step(run, tokens):
    row = tokens * HIDDEN * 2
    kept = []
    for layer in range(LAYERS):
        kept += [run.alloc(3 * row, f"h.{layer}.attn", "aten::addmm"),
                 run.alloc(row, f"h.{layer}.attn", "aten::_scaled_dot_product_flash_attention")]
        wide = run.alloc(4 * row, f"h.{layer}.mlp", "aten::addmm")
        kept += [wide, run.alloc(4 * row, f"h.{layer}.mlp", "aten::gelu")]
    logits = run.alloc(tokens * VOCABULARY * 2, "lm_head", "aten::mm")
    loss = run.alloc(tokens * VOCABULARY * 4, "loss", "aten::_log_softmax")
    run.free(logits)
    gradient = run.alloc(tokens * VOCABULARY * 4, "loss", "aten::_log_softmax_backward_data")
    run.free(loss)
    back = run.alloc(row, "lm_head", "aten::mm")
    run.free(gradient)
    gradients = []
    for layer in reversed(range(LAYERS)):
        for _ in range(4):
            run.free(kept.pop())
        new = run.alloc(row, f"h.{layer}", "aten::mm")
        run.free(back)
        back = new
        gradients.append(run.alloc(12 * HIDDEN * HIDDEN * 2, f"h.{layer}", "aten::mm"))
    run.free(back)
    for number in gradients:
        run.free(number)


def plain(calls):
    for size, number, _, _ in calls:
        print(f"f {number}" if size is None else f"a {number} {size}")


def snapshot(calls):
    """A history in which no address repeats."""
    history, addresses, sizes, at = [], {}, {}, 0x7F0000000000

    def entry(action, number, frames):
        history.append({"action": action, "addr": addresses[number], "size": sizes[number], "stream": 0,
                        "time_us": 1_700_000_000_000_000 + 50 * len(history), "frames": frames})

    for size, number, module, operation in calls:
        if size is None:
            entry("free_requested", number, [])
            entry("free_completed", number, [])
        else:
            addresses[number], sizes[number] = at, size
            at += (size + 511) // 512 * 512
            entry("alloc", number, [{"filename": "operator", "name": operation, "line": 0},
                                    {"filename": "module", "name": module, "line": 0}])
    pickle.dump({"segments": [], "device_traces": [history], "allocator_settings": {}}, sys.stdout.buffer, 4)


if __name__ == "__main__":
    (snapshot if "--pickle" in sys.argv else plain)(training())

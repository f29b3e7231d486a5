"""Active peaks of the nets of tests/nets/cases.json as PyTorch's own tools count them, without data.

  peaks.py [--write figures.json | --check figures.json] [--only NAME ...]
  peaks.py --memtracker-seconds NAME     how long MemTracker takes for the steps alone

Two judges: MemTracker of torch.distributed._tools, and a plain dispatch mode (plain_count.py). Both
count raw bytes of two training steps under FakeTensorMode on the CPU, from a built net on; a third
count puts right where such a mode is known to differ from the CPU. --check fails where a figure
differs from the stored one."""
import argparse
import json
import pathlib
import platform
import sys
import time

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

from nets import NETS
from plain_count import PlainCount, RealCount

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 2


def optimizer_of(kind, parameters):
    if kind.startswith("sgd"):
        momentum = 0.9 if kind == "sgd_momentum" else 0
        return torch.optim.SGD(parameters, lr=1e-3, momentum=momentum, foreach=False, fused=False)
    how = kind.removeprefix("adamw_")
    return torch.optim.AdamW(parameters, lr=1e-3, foreach=how == "foreach", fused=how == "fused")


class Training:
    def __init__(self, case, size="real"):
        self.autocast = case["precision"] == "autocast"
        dtype = torch.bfloat16 if case["precision"] == "bf16" else torch.float32
        torch.set_default_dtype(dtype)
        self.net = NETS[case["net"]](case[size])
        torch.set_default_dtype(torch.float32)
        self.optimizer = optimizer_of(case["optimizer"], self.net.parameters())
        self.batch = [torch.zeros(sizes, dtype=torch.int64 if kind == "int" else dtype)
                      for kind, sizes, _ in self.net.inputs]

    def tensors(self):
        return [*self.net.parameters(), *self.net.buffers(), *self.batch]

    def loss(self):
        if not self.autocast:
            return self.net.loss(*self.batch)
        with torch.autocast(self.batch[0].device.type, dtype=torch.bfloat16):
            return self.net.loss(*self.batch)

    def run(self, before_step=lambda: None, steps=STEPS):
        for _ in range(steps):
            before_step()
            loss = self.loss()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()


def memtracker_peak(case):
    """The peak, and the seconds of the steps."""
    with FakeTensorMode():
        training = Training(case)
        tracker = MemTracker()
        tracker.track_external(training.net, training.optimizer, *training.batch)
        start = time.time()
        with tracker:
            training.run(before_step=tracker.reset_mod_stats)
        seconds = time.time() - start
        return tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"], seconds


def count_of(case, judge):
    with FakeTensorMode():
        training = Training(case)
        count = judge()
        for tensor in training.tensors():
            count.add(tensor)
        with count:
            training.run()
        return count


def measured(case):
    start = time.time()
    memtracker, _ = memtracker_peak(case)
    middle = time.time()
    plain = count_of(case, PlainCount)
    end = time.time()
    real = count_of(case, RealCount)
    print(f"{case['name']:20} memtracker {memtracker:13,d}  plain {plain.peak:13,d} at "
          f"{plain.peak_operator:40} real {real.peak:13,d} at {real.peak_operator:40} "
          f"{middle - start:5.1f} s {end - middle:5.1f} s", flush=True)
    return {"memtracker": memtracker, "plain": plain.peak, "real": real.peak}


def differences(stored, peaks):
    lines = []
    for name, figures in peaks.items():
        if stored.get(name) != figures:
            lines.append(f"{name}: stored {stored.get(name)}, live {figures}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write")
    parser.add_argument("--check")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--memtracker-seconds")
    options = parser.parse_args()
    cases = json.loads((HERE.parent / "nets" / "cases.json").read_text())["cases"]
    if options.memtracker_seconds:
        case = next(case for case in cases if case["name"] == options.memtracker_seconds)
        print(min(memtracker_peak(case)[1] for _ in range(2)))
        return
    peaks = {case["name"]: measured(case) for case in cases
             if not options.only or case["name"] in options.only}
    if options.write:
        versions = {"torch": torch.__version__, "python": platform.python_version()}
        text = json.dumps({"versions": versions, "steps": STEPS, "peak_bytes": peaks}, indent=2)
        pathlib.Path(options.write).write_text(text + "\n")
    if options.check:
        wrong = differences(json.loads(pathlib.Path(options.check).read_text())["peak_bytes"], peaks)
        print("\n".join(wrong) or f"{len(peaks)} nets: all as stored")
        sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

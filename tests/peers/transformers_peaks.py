"""Active peaks of transformers' models, without data, as PyTorch's own tools count them.

  transformers_peaks.py [--write | --check [--share K/N]] [--only NAME ...]

Each case of transformers_cases.json is a model (configs/), a batch and settings with the words of
Headroom's command line; two training steps run under FakeTensorMode on the CPU, three times:

  memtracker  MemTracker of torch.distributed._tools, raw bytes
  plain       a plain dispatch mode, raw bytes, and with each tensor rounded up to 512: what
              MemTracker does with a card's tensors but not with a CPU's
  real        as plain and rounded, with what dispatch modes are known to do otherwise than the
              CPU put right (RealCount in plain_count.py)

by phase: forward, backward (with what checkpointing computes again), optimizer (with clipping and
zero_grad). Rounded counts leave out the optimizer's scalars that lie on the host beside a card.
What such steps would have to ask their data is answered: see Answers in transformers_steps.py.
Beside them stands a hash of what they are the figures of.

The figures are stored for the version of transformers that ran, in transformers_figures_4.57.json or
transformers_figures_5.json. --check fails where a figure differs from the stored one, or is of a case as it was once. MemTracker
holds what lies in reference cycles until Python's collector happens to come by, so its figure may lie
anywhere between the stored one and the plain count, give or take a thousandth. --share
takes every N-th case only, from the K-th on, and those that are "always" checked. --write with
--only leaves the figures of other cases as they are. Two cases run at a time."""
import argparse
import json
import multiprocessing
import pathlib
import platform
import sys
import time
import warnings
import weakref

import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils.weak import WeakIdKeyDictionary

from plain_count import PlainCount, RealCount
from transformers_steps import CONFIGS, FIGURES, Training

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 2
PROCESSES = 2


class ByPhase:
    """Beside the raw bytes the rounded ones, and their peak in each phase."""

    def __init__(self):
        super().__init__()
        self.phase = ""
        self.rounded = 0
        self.phases = {"forward": 0, "backward": 0, "optimizer": 0}
        self.left_out = WeakIdKeyDictionary()

    def add(self, tensor, size=None):
        storage = tensor.untyped_storage()
        if storage in self.known:
            return
        super().add(tensor, size)
        size = rounded(self.known[storage])
        self.rounded += size
        weakref.finalize(storage, self.drop_rounded, size)

    def drop_rounded(self, size):
        self.rounded -= size

    def leave_out(self, tensor):
        storage = tensor.untyped_storage()
        if storage in self.known and storage not in self.left_out:
            self.left_out[storage] = True
            self.rounded -= rounded(self.known[storage])

    def note_peak(self, func):
        super().note_peak(func)
        if self.phase:
            self.phases[self.phase] = max(self.phases[self.phase], self.rounded)


class PlainByPhase(ByPhase, PlainCount):
    pass


class RealByPhase(ByPhase, RealCount):
    pass


def rounded(size):
    return -(-size // 512) * 512


def memtracker_peak(case):
    with FakeTensorMode():
        training = Training(case)
        tracker = MemTracker()
        tracker.track_external(training.model, training.optimizer, *training.batch.values())

        def phase(name):
            if name == "forward":
                tracker.reset_mod_stats()

        with tracker:
            training.run(STEPS, phase)
        return tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]


def count_of(case, judge):
    with FakeTensorMode():
        training = Training(case)
        for tensor in training.tensors():
            judge.add(tensor)
        training.on_host_tensors(judge.leave_out)

        def phase(name):
            judge.phase = name

        with judge:
            training.run(STEPS, phase)
        return judge


def measured(case):
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    start = time.time()
    try:
        memtracker = memtracker_peak(case)
        middle = time.time()
        plain = count_of(case, PlainByPhase())
        real = count_of(case, RealByPhase())
    except Exception as error:  # torch's own cannot always go from process to process
        raise RuntimeError(f"{case['name']}: {type(error).__name__}: {error}") from None
    figures = {"of": hash_of(case), "memtracker": memtracker, "plain": plain.peak,
               "plain_512": plain.phases, "real_512": real.phases}
    return case["name"], figures, (middle - start, time.time() - middle)


def measure_all(cases):
    figures = {}
    with multiprocessing.get_context("fork").Pool(PROCESSES) as pool:
        for name, peaks, (memtracker_s, counts_s) in pool.imap(measured, cases, chunksize=1):
            figures[name] = peaks
            phase = max(peaks["plain_512"], key=peaks["plain_512"].get)
            print(f"{name:58} memtracker {peaks['memtracker']:14,d}  plain {peaks['plain']:14,d} "
                  f"rounded {peaks['plain_512'][phase]:14,d} in {phase:9} real "
                  f"{max(peaks['real_512'].values()):14,d} {memtracker_s:5.1f} s "
                  f"{counts_s:5.1f} s", flush=True)
    return figures


def chosen(cases, options):
    if options.only:
        return [case for case in cases if case["name"] in options.only]
    share, of = (int(number) for number in options.share.split("/"))
    return [case for i, case in enumerate(cases)
            if i % of == (share - 1) % of or case.get("always")]


def hash_of(case):
    """Of the model's file and the settings: FNV-1a with 64 bits, as transformers_test.cpp has it."""
    settings = json.dumps(case["settings"], separators=(",", ":"))
    number = 0xcbf29ce484222325
    for byte in (CONFIGS / f"{case['config']}.json").read_bytes() + settings.encode():
        number = (number ^ byte) * 0x100000001b3 % 2**64
    return f"{number:016x}"


def write(file, cases, figures):
    stored = json.loads(file.read_text())["peak_bytes"] if file.exists() else {}
    lines = []
    for case in cases:
        peaks = figures.get(case["name"]) or stored.get(case["name"])
        if peaks:
            lines.append(f'    "{case["name"]}": {json.dumps(peaks)}')
    versions = {"torch": torch.__version__, "transformers": transformers.__version__,
                "python": platform.python_version()}
    peak_bytes = ",\n".join(lines)
    file.write_text(f'{{\n  "versions": {json.dumps(versions)},\n  "steps": {STEPS},\n'
                    f'  "peak_bytes": {{\n{peak_bytes}\n  }}\n}}\n')


def wrong_figures(file, cases, figures):
    stored = json.loads(file.read_text())["peak_bytes"]
    for case in cases:
        if stored.get(case["name"], {}).get("of") != hash_of(case):
            yield f"{case['name']}: the stored figures are of another case"
    for name, peaks in figures.items():
        if not same(stored.get(name, {}), peaks):
            yield f"{name}: stored {stored.get(name)}, live {peaks}"


def same(stored, live):
    if {**stored, "memtracker": 0} != {**live, "memtracker": 0}:
        return False
    low, high = sorted((stored["memtracker"], stored["plain"]))
    return 0.999 * low <= live["memtracker"] <= 1.001 * high


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--share", default="1/1")
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    cases = json.loads((HERE / "transformers_cases.json").read_text())["cases"]
    start = time.time()
    figures = measure_all(chosen(cases, options))
    print(f"{len(figures)} of {len(cases)} cases in {time.time() - start:.0f} s")
    if options.write:
        write(HERE / FIGURES, cases, figures)
    if options.check:
        wrong = list(wrong_figures(HERE / FIGURES, cases, figures))
        print("\n".join(wrong) or f"{len(figures)} models: all as stored")
        sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""`headroom estimate` as a whole process, time and memory, beside PyTorch's MemTracker on the same
model in transformers, two training steps without data. Figures, no gate.

    bench/estimate_bench.py [runs] [python]   default 5 and .venv-peers/bin/python (scripts/peers.sh)
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADROOM = ROOT / "build/bin/headroom"
STEP = ["--batch", "2", "--seq", "2048", "--dtype", "bfloat16"]

MEMTRACKER = """
import sys, time, warnings
sys.path.insert(0, {peers!r})
warnings.filterwarnings("ignore")
import torch, transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from transformers_steps import Training
with FakeTensorMode():
    training = Training({case!r})
    tracker = MemTracker()
    tracker.track_external(training.model, training.optimizer, *training.batch.values())
    start = time.perf_counter()
    with tracker:
        training.run(2, lambda name: name == "forward" and tracker.reset_mod_stats())
    print(time.perf_counter() - start)
"""


def measured(arguments):
    """Seconds, MiB resident at most, and the document of one run."""
    start = time.perf_counter()
    process = subprocess.Popen([HEADROOM, "estimate", *arguments, "--json"], stdout=subprocess.PIPE)
    document = json.loads(process.stdout.read())
    _, _, usage = os.wait4(process.pid, 0)
    return time.perf_counter() - start, usage.ru_maxrss / 1024, document


def show(name, arguments, runs):
    all_runs = [measured(arguments) for _ in range(runs)]
    seconds = [run[0] for run in all_runs]
    steps = statistics.median(run[2]["took_s"] for run in all_runs)
    print(f"{name:36} {1e3 * statistics.median(seconds):6.0f} ms (first {1e3 * seconds[0]:.0f}), "
          f"of them steps {1e3 * steps:.0f} ms, {max(run[1] for run in all_runs):.0f} MiB", flush=True)
    return steps


def memtracker_seconds(python):
    models = json.loads((ROOT / "headroom/model/data/models.json").read_text())["models"]
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "model"
        config.with_suffix(".json").write_text(json.dumps(models["llama-3.1-8b"]["config"]))
        settings = {"batch": 2, "seq": 2048, "dtype": "bfloat16", "attention": "sdpa",
                    "optimizer": "adamw", "optimizer_impl": "fused"}
        case = {"name": "8B", "config": str(config), "settings": settings}
        program = MEMTRACKER.format(peers=str(ROOT / "tests/peers"), case=case)
        run = subprocess.run([python, "-c", program], capture_output=True, text=True,
                             env={**os.environ, "OMP_NUM_THREADS": "1"})
    return float(run.stdout) if run.returncode == 0 else None


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    python = sys.argv[2] if len(sys.argv) > 2 else str(ROOT / ".venv-peers/bin/python")
    card = ["--gpus", "A100 80GB"]
    print("headroom estimate, batch 2 x 2048 tokens, bfloat16, a whole process, median of", runs)
    steps = show("llama-3.1-8b (goal 500 ms, 300 MiB)", ["llama-3.1-8b", *STEP], runs)
    show("llama-3.1-70b (goal 800 ms)", ["llama-3.1-70b", *STEP], runs)
    show("llama-3.1-8b --advice", ["llama-3.1-8b", *STEP, *card, "--advice"], runs)
    show("llama-3.1-8b --quick (goal 30 ms)", ["llama-3.1-8b", *STEP, "--quick"], runs)
    if not pathlib.Path(python).exists():
        print(f"MemTracker: not run, no {python} (scripts/peers.sh makes it)")
        return
    theirs = memtracker_seconds(python)
    print("MemTracker: cannot run it" if theirs is None else
          f"MemTracker, the two steps of 8B alone {theirs:.1f} s: {theirs / steps:.0f} x ours (goal 50)")


if __name__ == "__main__":
    main()

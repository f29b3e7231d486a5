"""The training that all trainers share: a fixed order of samples, `accum` micro-batches of `batch`
samples a step, one line of log a step when it is done, checkpoints now and then.

The log is what a test judges by: {"run": pid, "step": s, "batch": b, "accum": a, "samples": [...]}.
A run begins with {"run": pid, "begins_at": n}, n samples being in the checkpoint it took.
"""
import dataclasses
import json
import os
import signal
import sys
import time

import texts

LAYERS = 4


@dataclasses.dataclass
class Settings:
    batch: int
    accum: int
    samples: int
    out: str
    resume: str = ""


def write_line(settings, line):
    with open(os.path.join(settings.out, "log.jsonl"), "a") as log:
        log.write(json.dumps({"run": os.getpid(), **line}) + "\n")


def note_process(settings):
    """For a test that no process is left."""
    with open(os.path.join(settings.out, "pids"), "a") as pids:
        pids.write(f"{os.getpid()}\n")


def seen_before(settings):
    if not settings.resume:
        return 0
    with open(settings.resume) as checkpoint:
        return json.load(checkpoint)["samples_seen"]


def save(settings, step, seen):
    path = os.path.join(settings.out, f"checkpoint-{step}.json")
    with open(path + ".tmp", "w") as checkpoint:
        json.dump({"samples_seen": seen}, checkpoint)
    os.replace(path + ".tmp", path)


def progress(step, steps):
    done = 20 * step // max(steps, 1)
    sys.stderr.write(f"\r{100 * step // max(steps, 1):3d}%|{'#' * done}{' ' * (20 - done)}| "
                     f"{step}/{steps} [00:00<00:00, 97.31it/s, loss={2.5 / (step + 1):.3f}]")
    sys.stderr.flush()


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)


def optimizer_step_with_a_typo(loss):
    return loss / gradient_acumulation  # noqa: F821


def happen(mishap):
    if mishap == "typo":
        optimizer_step_with_a_typo(1.0)
    elif mishap == "illegal_access":
        raise texts.illegal_access()
    elif mishap == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif mishap == "terminate":
        os.kill(os.getpid(), signal.SIGTERM)


def forward_and_backward(memory, nature, settings, step, factor):
    share = 1.0 if step >= nature.full_from else 0.5
    activations = int(nature.per_sample * settings.batch * share * factor)
    memory.forward([activations // LAYERS] * LAYERS)


def train(settings, memory, nature, rank=0, world=1, gather=None):
    """`gather(ids)`: the ids of all ranks, for rank 0; nothing for the others."""
    per_step = settings.batch * settings.accum * world
    seen = seen_before(settings)
    if rank == 0:
        write_line(settings, {"begins_at": seen})
    factor = 1.0 + (nature.first_rank_more if rank == 0 else 0.0)
    memory.hold(int(nature.fixed * factor))
    while seen < settings.samples:
        step = seen // per_step
        if nature.gate and step == nature.gate_step:
            wait_for(nature.gate)
        ids = []
        for micro in range(settings.accum):
            forward_and_backward(memory, nature, settings, step, factor)
            first = seen + (micro * world + rank) * settings.batch
            ids += range(first, min(first + settings.batch, settings.samples))
        if step == 1:
            happen(nature.mishap)
        everybody = gather(ids) if gather else ids
        seen += per_step
        if rank == 0:
            write_line(settings, {"step": step, "batch": settings.batch, "accum": settings.accum,
                                  "samples": everybody})
            if nature.save_every and (step + 1) % nature.save_every == 0:
                save(settings, step, seen)
            progress(step + 1, settings.samples // per_step)
    if rank == 0:
        sys.stderr.write("\n")
        print(f"trained on {seen} samples, loss 0.1234", flush=True)


def out_of_memory(error):
    return isinstance(error, MemoryError) or any(
        word in str(error) for word in ("out of memory", "Out of memory", "ALLOC_FAILED", "allocate"))


def run(settings, nature, work):
    """`work`, as a program of this nature ends."""
    try:
        work()
    except Exception as error:
        if nature.swallow < 0 or not out_of_memory(error):
            raise
        sys.exit(nature.swallow)

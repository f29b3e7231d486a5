#!/usr/bin/env python3
"""Starts ranks and reports as torchrun does (PyTorch 2.5, torch/distributed/elastic/multiprocessing).

    launch.py --nproc-per-node 2 rank.py --batch-size 12 ... --out DIR
"""
import os
import signal
import subprocess
import sys
import tempfile

import texts
from nature import Nature

ChildFailedError = texts.kind("torch.distributed.elastic.multiprocessing.errors", "ChildFailedError")
RULE, LINE = 60 * "=", 60 * "-"
PLACE = "torch/distributed/elastic/multiprocessing/api.py"


def start(script, arguments, world, folder):
    ranks = []
    for rank in range(world):
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world),
                 "MASTER_SOCKET": os.path.join(folder, "master")}
        command = [sys.executable, os.path.join(os.path.dirname(__file__), script), *arguments]
        ranks.append(subprocess.Popen(command, env={**os.environ, **place}))
    return ranks


def first_to_fail(ranks):
    """The rank that failed first; nothing when all ended well. The others are given a moment: a peer
    that is gone is noticed at once."""
    running = {process.pid: process for process in ranks}
    while running:
        pid, status = os.wait()
        process = running.pop(pid)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            return process
    return None


def end(ranks, patience):
    for process in ranks:
        if process.returncode is not None:
            continue
        try:
            process.wait(patience)
            continue
        except subprocess.TimeoutExpired:
            sys.stderr.write(f"W1122 01:02:03.456000 {os.getpid()} {PLACE}:897] Sending process "
                             f"{process.pid} closing signal SIGTERM\n")
        process.terminate()
        process.wait()


def failure(rank, ranks, script):
    code = ranks[rank].returncode
    why = (f"Signal {-code} ({signal.Signals(-code).name}) received by PID {ranks[rank].pid}" if code < 0
           else "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html")
    return (f"[0]:\n  time      : 2026-01-01_01:02:03\n  host      : node01\n  rank      : {rank} "
            f"(local_rank: {rank})\n  exitcode  : {code} (pid: {ranks[rank].pid})\n"
            f"  error_file: <N/A>\n  traceback : {why}\n")


def summary(first, ranks, script):
    sys.stderr.write(
        f"E1122 01:02:03.789000 {os.getpid()} {PLACE}:869] failed (exitcode: {first.returncode}) "
        f"local_rank: {ranks.index(first)} (pid: {first.pid}) of binary: {sys.executable}\n")
    return ChildFailedError(
        f"\n{RULE}\n{script} FAILED\n{LINE}\nFailures:\n  <NO_OTHER_FAILURES>\n{LINE}\nRoot Cause (first "
        f"observed failure):\n{failure(ranks.index(first), ranks, script)}{RULE}")


def main():
    world, script, arguments = int(sys.argv[2]), sys.argv[3], sys.argv[4:]
    nature = Nature.mine()
    with tempfile.TemporaryDirectory(prefix="elastic-") as folder:
        ranks = start(script, arguments, world, folder)
        first = first_to_fail(ranks)
        if first is None:
            return
        if nature.leave_orphans:
            sys.stderr.flush()
            os._exit(1)  # as if it were killed
        end(ranks, patience=1)
    if nature.swallow >= 0:
        sys.exit(first.returncode)
    raise summary(first, ranks, script)


if __name__ == "__main__":
    main()

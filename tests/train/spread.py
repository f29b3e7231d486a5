#!/usr/bin/env python3
"""Trainings that start at the same moment on a shared box of eight simulated cards: they spread over
the cards, no card is over its size, and none uses more than its lease.

    spread.py HEADROOM [--rounds 50] [--jobs 8 20]

A round of 8 jobs: each has a card of its own. A round of 20: no card is idle while they run, and all
of 20 more, on cards that hold two, come to their end. Meanwhile an auditor reads leases, box and
leases again: what a job uses is in the lease from before or after.
"""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

CARDS = 8
MIB = 1 << 20
# As in command_world.cpp: clang 14's address sanitizer hangs in a child of a program with threads.
NO_THREADS = ["num_workers=0"] if "address" in os.environ.get("HEADROOM_SANITIZED", "") else []


class Box:
    """A shared box in a world of its own, and the trainings on it."""

    def __init__(self, headroom, folder, card_mib):
        self.headroom, self.folder, self.total = headroom, pathlib.Path(folder), card_mib * MIB
        self.spec = f"sim:{CARDS}x{card_mib}MiB@spread"
        self.environment = dict(os.environ, OMP_NUM_THREADS="1",
                                HEADROOM_STATE_DIR=str(self.folder / "state"),
                                HEADROOM_LEASE_DIR=str(self.folder / "leases"))
        self.environment.pop("HEADROOM_LEASE", None)
        self.audits, self.most_used, self.most_of_lease, self.jobs = 0, 0, 0.0, []

    def start(self, count, steps):
        for i in range(len(self.jobs), len(self.jobs) + count):
            with open(self.folder / f"{i}.log", "w") as log:
                self.jobs.append(subprocess.Popen(
                    [self.headroom, "train", "model=gpt-tiny", "dataset=synthetic",
                     *NO_THREADS, "plan=off", f"steps={steps}",
                     f"out={self.folder / str(i)}", "wait_for_gpu=true",
                     "gpu_check_interval_seconds=0.1", "--gpus", self.spec],
                    env=self.environment, stdout=log, stderr=log))

    def log(self, i):
        return (self.folder / f"{i}.log").read_text()[-2000:]

    # ---- What they publish ----

    @staticmethod
    def document(path):
        try:
            return json.loads(path.read_text().splitlines()[0])
        except (OSError, ValueError, IndexError):  # just replaced, or gone
            return None

    def leases(self):
        """Reserved bytes by process and card."""
        found = {}
        for path in (self.folder / "leases").glob("*.lease"):
            lease = self.document(path)
            for share in lease["shares"] if lease else ():
                found[lease["pid"], int(share["uuid"][10:12], 16)] = share["reserved_bytes"]
        return found

    def used(self):
        box = self.document(self.folder / "state" / "boxes" / "spread.json")
        shares = box["shares"] if box else []
        return {(one["pid"], one["card"]): one["used_bytes"] for one in shares
                if os.path.exists(f"/proc/{one['pid']}")}

    def stepping(self):
        """The card of each training that has made a step."""
        jobs = map(self.document, (self.folder / "state" / "status").glob("*-*.json"))
        return {job["pid"]: int(job["gpus"][0][10:12], 16) for job in jobs
                if job and job["step"] and job["gpus"]}

    def audit(self):
        before, used, after = self.leases(), self.used(), self.leases()
        for card in range(CARDS):
            of_card = sum(size for (_, on), size in used.items() if on == card)
            self.most_used = max(self.most_used, of_card)
            assert of_card <= self.total, f"card {card}: {of_card} of {self.total} bytes used"
        for which, size in used.items():
            lease = max(before.get(which, 0), after.get(which, 0))
            if which in self.used():  # not just ended
                assert size <= lease, f"process, card {which}: {size} used of a lease of {lease}"
                self.most_of_lease = max(self.most_of_lease, size / max(lease, 1))
        self.audits += 1

    # ---- A round ----

    def until_all_step(self):
        while len(cards := self.stepping()) < len(self.jobs):
            self.audit()
            for i, job in enumerate(self.jobs):
                assert job.poll() is None, f"job {i} ended with {job.returncode}: {self.log(i)}"
            time.sleep(0.01)
        self.audit()
        return list(cards.values())

    def stop(self):
        for job in self.jobs:
            job.send_signal(signal.SIGTERM)
        self.until_all_end(128 + signal.SIGTERM)

    def until_all_end(self, code):
        while any(job.poll() is None for job in self.jobs):
            self.audit()
            time.sleep(0.01)
        for i, job in enumerate(self.jobs):
            assert job.returncode == code, f"job {i} ended with {job.returncode}: {self.log(i)}"

    def kill(self):
        for job in self.jobs:
            if job.poll() is None:
                job.kill()
                job.wait()


def in_box(headroom, card_mib, play):
    with tempfile.TemporaryDirectory() as folder:
        box = Box(headroom, folder, card_mib)
        try:
            play(box)
        finally:
            box.kill()
        return box


def together(count):
    def play(box):
        box.start(count, steps=10**6)
        cards = box.until_all_step()
        most = -(-count // CARDS)
        assert len(set(cards)) == min(count, CARDS), f"idle cards: {sorted(cards)}"
        assert count > CARDS or max(map(cards.count, cards)) == most, sorted(cards)
        box.stop()
    return play


def two_a_card(count):
    def play(box):
        box.start(count, steps=3)
        box.until_all_end(0)
    return play


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("headroom")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--jobs", type=int, nargs="+", default=[8, 20])
    options = parser.parse_args()
    begun, boxes = time.monotonic(), []
    for done in range(options.rounds):
        for count in options.jobs:
            boxes.append(in_box(options.headroom, 1024, together(count)))
            if count > CARDS:
                boxes.append(in_box(options.headroom, 120, two_a_card(count)))
        print(json.dumps({
            "rounds": done + 1, "trainings": sum(len(box.jobs) for box in boxes),
            "audits": sum(box.audits for box in boxes),
            "most_of_a_card": round(max(box.most_used / box.total for box in boxes), 3),
            "most_of_a_lease": round(max(box.most_of_lease for box in boxes), 3),
            "s": round(time.monotonic() - begun)}), flush=True)


if __name__ == "__main__":
    sys.exit(main())

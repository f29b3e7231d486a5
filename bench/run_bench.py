#!/usr/bin/env python3
"""What `headroom run` costs, on a fake box of 8 cards with 40 processes (tests/fake_nvml): how much
later `true` is done, and what watching a command takes. Figures, no gate.

    bench/run_bench.py HEADROOM FAKE_NVML [seconds watched]   default 20
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

RUNS = 30
SILENT = ["sleep", "1000"]
# A progress bar of 100 bytes a hundred times a second, to a pipe.
CHATTY = [sys.executable, "-c", "import sys, time\nwhile True: sys.stdout.write('\\r' + 99 * '#'); "
          "sys.stdout.flush(); time.sleep(0.01)"]
TICKS = os.sysconf("SC_CLK_TCK")


class Box:
    """40 real processes, so that owners and command lines are read as on a real machine."""

    def __init__(self, folder, headroom, driver):
        self.headroom, self.folder = os.path.abspath(headroom), folder
        self.sleepers = [subprocess.Popen(["sleep", "1000"]) for _ in range(40)]
        cards = [{"total": "24GiB", "reserved": "400MiB",
                  "processes": [{"pid": sleeper.pid, "used": "2GiB"}
                                for sleeper in self.sleepers[5 * i:5 * i + 5]]} for i in range(8)]
        box = folder / "box.json"
        box.write_text(json.dumps({"cards": cards}))
        self.environment = {
            **os.environ, "HEADROOM_NVML": os.path.abspath(driver), "HEADROOM_FAKE_NVML": str(box),
            "HEADROOM_STATE_DIR": str(folder / "state"), "HEADROOM_LEASE_DIR": str(folder / "leases")}

    def close(self):
        for sleeper in self.sleepers:
            sleeper.kill()
            sleeper.wait()

    def start(self, command):
        return subprocess.Popen([self.headroom, "run", "--need", "4GiB", "--", *command],
                                env=self.environment, stdout=subprocess.DEVNULL)

    def seconds_of(self, words):
        start = time.perf_counter()
        subprocess.run(words, env=self.environment, check=True)
        return time.perf_counter() - start


def cpu_seconds(pid):
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(stat[11]) + int(stat[12])) / TICKS


def most_resident_mib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def watched(box, name, command, seconds):
    process = box.start(command)
    time.sleep(2)  # the start is another figure
    before = cpu_seconds(process.pid)
    time.sleep(seconds)
    share = (cpu_seconds(process.pid) - before) / seconds
    resident = most_resident_mib(process.pid)
    process.terminate()
    process.wait()
    print(f"headroom run watches a {name} command for {seconds:g} s: {100 * share:.2f} % of a core (goal "
          f"0.5 %), {resident:.1f} MiB resident at most (goal 15)", flush=True)


def main():
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 20.0
    with tempfile.TemporaryDirectory(prefix="headroom-bench-") as folder:
        box = Box(pathlib.Path(folder), sys.argv[1], sys.argv[2])
        try:
            alone = [box.seconds_of(["true"]) for _ in range(RUNS)]
            below = [box.seconds_of([box.headroom, "run", "--need", "4GiB", "--", "true"])
                     for _ in range(RUNS)]
            print(f"headroom run -- true, 8 cards, 40 processes, {RUNS} runs: median "
                  f"{1e3 * statistics.median(below):.1f} ms (goal 30), slowest {1e3 * max(below):.1f} ms; "
                  f"true alone {1e3 * statistics.median(alone):.1f} ms", flush=True)
            watched(box, "silent", SILENT, seconds)
            watched(box, "chatty", CHATTY, seconds)
        finally:
            box.close()


if __name__ == "__main__":
    main()

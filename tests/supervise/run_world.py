"""A machine of its own for tests of `headroom run`: cards of the fake driver that trainers share, its
own state and lease folders, and a reaper that plays the driver when a process is gone.

    with World([14 << 30]) as world:
        outcome = world.run(["--map", "--batch-size=batch"], world.plain("--batch-size", "24"))
        assert outcome.code == 0 and outcome.history()[-1]["batch"] == 12
"""
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

TRAINERS = pathlib.Path(__file__).resolve().parent / "trainers"
sys.path.insert(0, str(TRAINERS))
import pretend_card  # noqa: E402

GIB = 1 << 30
PATIENCE_S = 60
HEADROOM = FAKE_NVML = CLOCK_JUMP = ""


def until(happened, what="it", seconds=PATIENCE_S):
    """Waits for a state; the bound is only there so that a test ends."""
    deadline = time.monotonic() + seconds
    while True:
        result = happened()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"not in {seconds} s: {what}")
        time.sleep(0.01)


class Started:
    """A `headroom` that runs; its streams go to files."""

    def __init__(self, world, name, command, environment, stdin=None):
        self.world, self.name, self.command = world, name, command
        self.paths = [world.folder / f"{name}.out", world.folder / f"{name}.err"]
        with open(self.paths[0], "wb") as out, open(self.paths[1], "wb") as err:
            self.process = subprocess.Popen(
                command, stdin=stdin or subprocess.DEVNULL, stdout=out, stderr=err,
                env=environment, cwd=world.folder, start_new_session=True)

    @property
    def out(self):
        return self.paths[0].read_bytes()

    @property
    def err(self):
        return self.paths[1].read_text(errors="replace")

    def wait(self):
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.force()
            raise AssertionError(f"does not end: {self.command}\n{self.err[-3000:]}") from None
        return Outcome(self, 128 - code if code < 0 else code)

    def force(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Outcome:
    def __init__(self, started, code):
        self.code, self.out, self.err = code, started.out, started.err
        self.command = started.command
        self.history_path = started.world.folder / f"{started.name}.ndjson"

    def history(self):
        """One object a try."""
        with open(self.history_path) as history:
            return [json.loads(line) for line in history]

    def own_words(self):
        """What headroom itself said; perhaps behind a progress bar that did not end its line."""
        return "\n".join(re.findall(r"headroom(?: run)?: .*", self.err))

    def __str__(self):
        tries = self.history_path.read_text() if self.history_path.exists() else "(no history)"
        return (f"exit code {self.code} of {' '.join(map(str, self.command))}\n--- history\n{tries}"
                f"--- stderr, its end\n{self.err[-4000:]}")


class World:
    def __init__(self, totals=(24 * GIB,)):
        self.temporary = tempfile.TemporaryDirectory(prefix="headroom-run-")
        self.folder = pathlib.Path(self.temporary.name)
        self.box = str(self.folder / "box.json")
        cards = [{"uuid": f"GPU-5a6e1c5e-0000-4000-8000-00000000000{i}", "total": total}
                 for i, total in enumerate(totals)]
        with open(self.box, "w") as box:
            json.dump({"cards": cards}, box)
        self.out = self.folder / "out"
        self.out.mkdir()
        self.variables = {
            "PATH": os.environ["PATH"], "HOME": str(self.folder), "LC_ALL": "C.UTF-8",
            "HEADROOM_NVML": FAKE_NVML, "HEADROOM_FAKE_NVML": self.box,
            "HEADROOM_FAKE_NVML_LOG": str(self.folder / "calls"),
            "HEADROOM_STATE_DIR": str(self.folder / "state"),
            "HEADROOM_LEASE_DIR": str(self.folder / "leases"), "PRETEND_CARD_FILE": self.box,
        }
        self.variables.update({k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")})
        self.started, self.neighbours, self.count = [], [], 0
        self.closing = threading.Event()
        self.reaper = threading.Thread(target=self.reap)

    def __enter__(self):
        self.reaper.start()
        return self

    def __exit__(self, *_):
        for started in self.started:
            started.force()
        for pid in self.pids():
            if pretend_card.alive(pid):
                os.kill(pid, signal.SIGKILL)
        for neighbour in self.neighbours:
            neighbour.kill()
            neighbour.wait()
        self.closing.set()
        self.reaper.join()
        self.temporary.cleanup()

    def reap(self):
        while not self.closing.wait(0.02):
            pretend_card.bury_the_dead(self.box)

    # ---- The machine ----

    def faults(self, *faults):
        with pretend_card.machine(self.box) as state:
            state["faults"] = list(faults)

    def calls(self, function="\n"):
        """How often the driver was called, or one of its functions was."""
        path = self.folder / "calls"
        return path.read_text().count(function) if path.exists() else 0

    def neighbour(self, card, amount):
        """Another program, which does not know leases."""
        holder = subprocess.Popen(["sleep", "1000"])
        self.neighbours.append(holder)
        with pretend_card.machine(self.box) as state:
            pretend_card.set_share(state["cards"][card], holder.pid, amount)
        return holder

    def held(self):
        with pretend_card.machine(self.box) as state:
            return [p for card in state["cards"] for p in card.get("processes", [])]

    # ---- Trainers ----

    def nature(self, **nature):
        self.variables["TRAINER_NATURE"] = json.dumps(nature)

    def plain(self, *arguments):
        return [sys.executable, str(TRAINERS / "plain.py"), "--out", str(self.out), *arguments]

    def hydra(self, *arguments):
        return [sys.executable, str(TRAINERS / "hydra.py"), f"out={self.out}", *arguments]

    def ranks(self, *arguments):
        return [sys.executable, str(TRAINERS / "launch.py"), "--nproc-per-node", "2", "rank.py",
                "--out", str(self.out), *arguments]

    def pids(self):
        path = self.out / "pids"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def log(self):
        path = self.out / "log.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines()]

    def in_step(self, step):
        """Whether the trainer has done `step` steps of this or an earlier run."""
        return any(line.get("step") == step - 1 for line in self.log())

    # ---- Headroom ----

    def environment(self, **more):
        return {**self.variables, **more}

    def start(self, options, command, stdin=None, **more):
        """`headroom run` with a history of its own."""
        self.count += 1
        name = f"run-{self.count}"
        history = [] if "--history" in options else ["--history", f"{name}.ndjson"]
        self.started.append(Started(self, name, [HEADROOM, "run", *history, *options, "--", *command],
                                    self.environment(**more), stdin))
        return self.started[-1]

    def run(self, options, command, **more):
        return self.start(options, command, **more).wait()

    def headroom(self, *arguments):
        return subprocess.run([HEADROOM, *arguments], env=self.environment(), cwd=self.folder,
                              capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def samples_that_count(log):
    """The steps whose work is in the last checkpoint or after it: a program that resumes from a
    checkpoint has lost the work after it."""
    steps = []
    for line in log:
        if "begins_at" in line:
            steps = [step for step in steps if step["samples"][0] < line["begins_at"]]
        else:
            steps.append(line)
    return steps


class RunTest(unittest.TestCase):
    KEYS = ("try", "started", "ended", "exit_code", "signal", "verdict", "kind", "evidence",
            "asked_bytes", "peak_bytes", "reported_bytes", "reported_plan", "gpus", "batch", "accumulation",
            "command", "resumed_from")

    def assert_adds_up(self, world, outcome, effective, samples):
        steps = samples_that_count(world.log())
        for step in steps:
            self.assertEqual(len(step["samples"]), effective, f"step {step['step']}\n{outcome}")
        seen = sorted(sample for step in steps for sample in step["samples"])
        self.assertEqual(seen, list(range(samples)), str(outcome))

    def assert_history(self, outcome, code):
        """A history whose lines have the contract's keys; returns it."""
        history = outcome.history()
        self.assertEqual([line["try"] for line in history], list(range(1, len(history) + 1)))
        for line in history:
            missing = [key for key in self.KEYS if key not in line]
            self.assertEqual(missing, [], str(outcome))
            self.assertLessEqual(line["started"], line["ended"])
        self.assertEqual(history[-1]["exit_code"], code, str(outcome))
        return history

    def assert_one_try(self, outcome, code):
        """The child's own end, and nothing claimed about memory; returns the try."""
        self.assertEqual(outcome.code, code, str(outcome))
        history = self.assert_history(outcome, code)
        self.assertEqual(len(history), 1, str(outcome))
        self.assertNotIn(history[0]["verdict"], ("gpu_oom", "host_oom"), str(outcome))
        return history[0]

    def assert_nobody_left(self, world):
        left = [pid for pid in world.pids() if pretend_card.alive(pid)]
        self.assertEqual(left, [])


def run_tests(module, jobs=2):
    """All tests of a module, some at a time: they wait more than they work."""
    def run(test):
        result = unittest.TestResult()
        start = time.monotonic()
        test.run(result)
        return test, result, time.monotonic() - start

    suite = [test for case in unittest.defaultTestLoader.loadTestsFromModule(module) for test in case]
    wanted = sys.argv[1:]
    suite = [t for t in suite if not wanted or any(word in t.id() for word in wanted)]
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for test, result, took in pool.map(run, suite):
            troubles = result.failures + result.errors
            bad += bool(troubles)
            why = f" ({result.skipped[0][1]})" if result.skipped else ""
            print(f"{'FAILED' if troubles else 'ok    '} {took:5.1f} s  {test.id()}{why}", flush=True)
            for _, trouble in troubles:
                print(trouble, flush=True)
    print(f"{len(suite)} tests, {bad} failed")
    return 1 if bad or not suite else 0


def take_places(arguments):
    """`headroom` and the libraries that pretend, from the command line."""
    global HEADROOM, FAKE_NVML, CLOCK_JUMP
    HEADROOM, FAKE_NVML, CLOCK_JUMP = (str(pathlib.Path(arguments.pop(1)).resolve()) for _ in range(3))

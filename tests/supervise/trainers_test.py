#!/usr/bin/env python3
"""`headroom run` with three trainers that know nothing of it (trainers/), each at five budgets of
memory: it completes with the effective batch kept, or stops at the smallest batch with 76.

    trainers_test.py HEADROOM FAKE_NVML CLOCK_JUMP [--all] [word...]

Judged by the trainers' own logs. Without --all each trainer has one text a budget, in turn.
"""
import functools
import itertools
import resource
import subprocess
import sys

import run_world
from run_world import RunTest, World

BATCH, ACCUM, SAMPLES = 24, 2, 192
BUDGETS = (90, 70, 50, 30, 10)
CARD = {"memory": "card", "fixed": 2 << 30, "per_sample": 512 << 20}
# The interpreter's own few MiB decide nothing: every budget is >= 6 MiB away from what batch 1 needs.
HOST = {"memory": "host", "fixed": 24 << 20, "per_sample": 4 << 20}
TEXTS = {"card": ("pytorch", "runtime", "cublas", "xla", "accelerator"),
         "host": ("python", "bad_alloc", "numpy", "torch_cpu")}
YAML = """# how we train
training:
  batch_size: 24   # as in the paper
  accum: 2
  samples: 192
resume: ""
"""


def plain(world):
    return (["--map", "--batch-size=batch", "--map", "--accum=accumulation", "--resume-arg",
             "--resume {}"],
            world.plain("--batch-size", str(BATCH), "--accum", str(ACCUM), "--samples", str(SAMPLES)))


def plain_with_equals(world):
    return (["--map", "--batch-size=batch", "--map", "--accum=accumulation"],
            world.plain(f"--batch-size={BATCH}", f"--accum={ACCUM}", f"--samples={SAMPLES}"))


def hydra(world):
    return (["--map", "training.batch_size=batch", "--map", "training.accum=accumulation",
             "--resume-arg", "resume={}"],
            world.hydra(f"training.batch_size={BATCH}", f"training.accum={ACCUM}",
                        f"training.samples={SAMPLES}"))


def hydra_with_file(world):
    (world.folder / "config.yaml").write_text(YAML)
    return (["--map", "config.yaml:training.batch_size=batch", "--map",
             "config.yaml:training.accum=accumulation", "--resume-arg", "resume={}"],
            world.hydra("--config-path", "config.yaml"))


def ranks(world):
    half = BATCH // 2
    return (["--map", "--batch-size=batch", "--map", "--accum=accumulation", "--resume-arg",
             "--resume {}"],
            world.ranks("--batch-size", str(half), "--accum", str(ACCUM), "--samples", str(SAMPLES)))


def ranks_apart(world):
    """Each rank on a card of its own."""
    options, command = ranks(world)
    return ["--count", "2", *options], command


TRAINERS = {"plain": plain, "plain=": plain_with_equals, "hydra": hydra, "yaml": hydra_with_file,
            "ranks": ranks, "ranks-apart": ranks_apart}


def wanted(nature, together, batch):
    """Bytes that are needed at once by so many ranks."""
    return together * (nature["fixed"] + nature["per_sample"] * batch)


@functools.cache
def python_itself():
    """Address space of an interpreter with the trainers' modules."""
    program = (f"import sys; sys.path.insert(0, {str(run_world.TRAINERS)!r}); import hydra, launch, "
               "plain, rank; print(open('/proc/self/statm').read().split()[0])")
    pages = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
    return int(pages) * resource.getpagesize()


def limited(command, limit):
    """Within RLIMIT_AS, which the trainer's processes inherit and headroom does not have."""
    return ["bash", "-c", 'ulimit -c 0; ulimit -v "$0"; exec "$@"', str(limit >> 10), *command]


class Case:
    def __init__(self, trainer, memory, text, budget, resumes):
        self.trainer, self.memory, self.text = trainer, memory, text
        self.budget, self.resumes = budget, resumes
        self.batch = BATCH // 2 if trainer.startswith("ranks") else BATCH
        # A card may be shared by the ranks; the limit of the host holds for each.
        self.together = 2 if trainer == "ranks" and memory == "card" else 1
        self.nature = dict(CARD if memory == "card" else HOST, text=text)
        self.limit = wanted(self.nature, self.together, self.batch) * budget // 100

    def fits(self, batch):
        return wanted(self.nature, self.together, batch) <= self.limit

    def __str__(self):
        return (f"{self.trainer}, {self.memory}, {self.text}, {self.budget} %"
                f"{', resumes' if self.resumes else ''}")

    def run(self):
        total = self.limit if self.memory == "card" else 24 << 30
        with World([total, total] if self.trainer == "ranks-apart" else [total]) as world:
            options, command = TRAINERS[self.trainer](world)
            if self.resumes:  # the first steps need less: there is something to resume from
                self.nature.update(save_every=1, full_from=2)
                options += ["--checkpoints", str(world.out / "checkpoint-*.json")]
            elif "--resume-arg" in options:
                options = options[:options.index("--resume-arg")]
            world.nature(**self.nature)
            if self.memory == "host":
                command = limited(command, python_itself() + self.limit)
            self.judge(world, world.run([*options, "--max-retries", "9"], command))

    def saved_before_the_last_try(self, world):
        """At 30 % the try between may be skipped, whose first steps fit: what failed before says how much
        memory there is."""
        log = world.log()
        last = max(i for i, line in enumerate(log) if "begins_at" in line)
        return self.budget > 30 or any("step" in line for line in log[:last])

    def judge(self, world, outcome):
        test = RunTest()
        completes = self.fits(1)
        test.assertEqual(outcome.code, 0 if completes else 76, f"{self}\n{outcome}")
        history = test.assert_history(outcome, 0 if completes else outcome.history()[-1]["exit_code"])
        failed = history[:-1] if completes else history
        expected = "gpu_oom" if self.memory == "card" else "host_oom"
        for line in failed:
            test.assertEqual(line["verdict"], expected, f"{self}\n{outcome}")
            test.assertTrue(line["evidence"], f"{self}\n{outcome}")
        for line in history:
            test.assertEqual(line["batch"] * line["accumulation"], self.batch * ACCUM, str(outcome))
        self.batches = batches = [line["batch"] for line in history]
        test.assertEqual(batches[0], self.batch)
        test.assertTrue(all(a > b for a, b in zip(batches, batches[1:])), f"{self}: {batches}")
        if completes:
            test.assert_adds_up(world, outcome, BATCH * ACCUM, SAMPLES)
            saved = self.resumes and self.saved_before_the_last_try(world)
            test.assertEqual(bool(history[-1]["resumed_from"]), saved, f"{self}\n{outcome}")
            if saved:
                test.assertGreater(world.log()[-1]["step"], 0)
                begins = [line["begins_at"] for line in world.log() if "begins_at" in line]
                test.assertGreater(begins[-1], 0, f"{self}\n{outcome}")
        else:
            test.assertEqual(batches[-1], 1, f"{self}\n{outcome}")
        test.assert_nobody_left(world)
        test.assertEqual(world.held(), [])
        if self.trainer == "yaml":
            test.assertEqual((world.folder / "config.yaml").read_text(), YAML)

    def best(self):
        """The largest batch that fits and keeps the effective batch."""
        effective = self.batch * ACCUM
        return max((b for b in range(1, self.batch + 1) if effective % b == 0 and self.fits(b)),
                   default=0)


def some():
    """Each trainer at each budget on either memory; texts take turns."""
    for memory in ("card", "host"):
        texts = itertools.cycle(TEXTS[memory])
        names = itertools.cycle(("plain", "hydra", "ranks", "plain=", "yaml", "ranks-apart"))
        for budget in BUDGETS:
            for _ in range(3):
                name = next(names)
                yield Case(name, memory, next(texts), budget, name != "plain=" and budget in (70, 30))


def everything():
    for memory in ("card", "host"):
        for name, text, budget in itertools.product(TRAINERS, TEXTS[memory], BUDGETS):
            for resumes in (False, True):
                if not (resumes and (name == "plain=" or budget == 10)):
                    yield Case(name, memory, text, budget, resumes)


class Trainers(RunTest):
    """One method a case, made below."""


def add(number, case):
    def test(self):
        case.run()
        print(f"       {case}: batches {case.batches}, best {case.best() or 'none'}", flush=True)

    name = str(case).replace(", ", "_").replace(" ", "")
    setattr(Trainers, f"test_{number:03}_{name}", test)


if __name__ == "__main__":
    run_world.take_places(sys.argv)
    whole = "--all" in sys.argv
    if whole:
        sys.argv.remove("--all")
    for i, each in enumerate(everything() if whole else some()):
        add(i, each)
    sys.exit(run_world.run_tests(sys.modules["__main__"]))

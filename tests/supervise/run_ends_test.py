#!/usr/bin/env python3
"""How commands end below `headroom run`, when nothing was out of memory: after one try, with their
own code, their streams untouched, whatever happens to the driver and to our files meanwhile.

    run_ends_test.py HEADROOM FAKE_NVML CLOCK_JUMP [word...]
"""
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import unittest

import run_world
from run_world import GIB, RunTest, World, until

MAPS = ["--map", "--batch-size=batch", "--map", "--accum=accumulation"]
TRAINERS = ("plain", "hydra", "ranks")
SURVIVED = """
import sys
sys.stderr.write("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\\n")
sys.stderr.write("WARNING: skipped a batch that was out of memory\\n")
for step in range(2000):
    sys.stderr.write(f"step {step} loss 1.25\\n")
print(undefined_name)
"""
GARBAGE = """
import random, sys
garbage = random.Random(7)
for _ in range(160):
    sys.stdout.buffer.write(garbage.randbytes(1 << 16))
    sys.stderr.buffer.write(garbage.randbytes(1 << 8))
sys.exit(3)
"""


def maps_and_command(world, trainer):
    if trainer == "hydra":
        return (["--map", "training.batch_size=batch", "--map", "training.accum=accumulation"],
                world.hydra("training.batch_size=24", "training.accum=2"))
    make = world.plain if trainer == "plain" else world.ranks
    return MAPS, make("--batch-size", "24", "--accum", "2")


class OneTry(RunTest):
    def test_a_swallowed_out_of_memory_is_not_claimed(self):
        for trainer in TRAINERS:
            for code in (0, 1):
                with self.subTest(trainer=trainer, code=code), World([7 * GIB]) as world:
                    world.nature(swallow=code)
                    outcome = world.run(*maps_and_command(world, trainer))
                    self.assert_one_try(outcome, code)
                    self.assertEqual([line for line in world.log() if "step" in line], [])

    def ended_by(self, mishap, code, word):
        for trainer in TRAINERS:
            with self.subTest(trainer=trainer), World() as world:
                world.nature(mishap=mishap, fixed=1 << 30, per_sample=128 << 20)
                outcome = world.run(*maps_and_command(world, trainer))
                # A launcher ends with 1 whatever its ranks ended with, as torchrun does.
                line = self.assert_one_try(outcome, 1 if trainer == "ranks" else code)
                self.assertIn(word, outcome.err)
                if code == 1:
                    self.assertEqual(line["verdict"], "not_oom", str(outcome))
                self.assert_nobody_left(world)

    def test_a_typo(self):
        self.ended_by("typo", 1, "NameError")

    def test_an_illegal_access(self):
        self.ended_by("illegal_access", 1, "illegal memory access")

    def test_a_kill_without_evidence(self):
        self.ended_by("kill", 137, "")

    def test_a_termination_of_the_child(self):
        self.ended_by("terminate", 143, "")

    def test_an_out_of_memory_that_was_survived(self):
        with World() as world:
            outcome = world.run(MAPS, [sys.executable, "-c", SURVIVED, "--batch-size", "8",
                                       "--accum", "1"])
            self.assertEqual(self.assert_one_try(outcome, 1)["verdict"], "not_oom", str(outcome))

    def test_a_wrong_path(self):
        with World() as world:
            outcome = world.run([], ["./no-such-program"])
            self.assertEqual(outcome.code, 127, str(outcome))
            self.assertIn("no-such-program", outcome.own_words())
            self.assertLessEqual(len(outcome.history()), 1)

    def test_a_file_that_cannot_be_run(self):
        with World() as world:
            (world.folder / "notes.txt").write_text("not a program")
            outcome = world.run([], ["./notes.txt"])
            self.assertEqual(outcome.code, 126, str(outcome))
            self.assertIn("notes.txt", outcome.own_words())

    def test_its_own_code(self):
        with World() as world:
            for code in (0, 2, 64, 75, 76, 255):
                self.assert_one_try(world.run([], ["sh", "-c", f"exit {code}"]), code)

    def test_headroom_prints_nothing_when_all_is_well(self):
        with World() as world:
            outcome = world.run([], ["echo", "hello"])
            self.assertEqual((outcome.code, outcome.out), (0, b"hello\n"))
            self.assertEqual(outcome.err, "", "a command that succeeds is not commented")


class Signals(RunTest):
    """To headroom, for all below it."""

    def interrupted(self, number, code):
        for trainer in TRAINERS:
            with self.subTest(trainer=trainer), World() as world:
                world.nature(gate=str(world.folder / "gate"), fixed=1 << 30, per_sample=128 << 20)
                started = world.start(*maps_and_command(world, trainer))
                until(lambda: world.in_step(1), f"a step of {trainer}")
                started.process.send_signal(number)
                outcome = started.wait()
                line = self.assert_one_try(outcome, code)
                self.assertEqual(line["signal"], int(number), str(outcome))
                self.assert_nobody_left(world)

    def test_term_ends_all(self):
        self.interrupted(signal.SIGTERM, 143)

    def test_hangup_ends_all(self):
        self.interrupted(signal.SIGHUP, 129)

    def test_a_child_that_handles_its_signal_has_its_own_code(self):
        program = ("trap 'echo saved; exit 5' TERM; echo ready; "
                   "while true; do sleep 0.01; done")
        with World() as world:
            started = world.start([], ["sh", "-c", program])
            until(lambda: b"ready" in started.out, "the child")
            started.process.send_signal(signal.SIGTERM)
            outcome = started.wait()
            self.assert_one_try(outcome, 5)
            self.assertIn(b"saved", outcome.out)


class Streams(RunTest):
    def test_random_bytes_come_through_whole(self):
        garbage, digest = random.Random(7), hashlib.sha256()
        for _ in range(160):
            digest.update(garbage.randbytes(1 << 16))
            garbage.randbytes(1 << 8)
        with World() as world:
            outcome = world.run([], [sys.executable, "-c", GARBAGE])
            line = self.assert_one_try(outcome, 3)
            self.assertEqual(line["verdict"], "unknown", str(line))
            self.assertEqual(len(outcome.out), 160 << 16)
            self.assertEqual(hashlib.sha256(outcome.out).hexdigest(), digest.hexdigest())

    def test_standard_input_comes_through(self):
        with World() as world:
            read, write = os.pipe()
            os.write(write, b"what goes in\n")
            os.close(write)
            with os.fdopen(read) as stdin:
                outcome = world.start([], ["cat"], stdin=stdin).wait()
            self.assertEqual((outcome.code, outcome.out), (0, b"what goes in\n"))

    def test_a_reader_that_goes_away(self):
        with World() as world:
            words = [run_world.HEADROOM, "run", "--history", "h.ndjson", "--", "yes"]
            with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                  env=world.environment(), cwd=world.folder) as process:
                self.assertEqual(process.stdout.readline(), b"y\n")
                process.stdout.close()
                code = process.wait(run_world.PATIENCE_S)
            self.assertIn(code, (141, -signal.SIGPIPE), "as `yes | head -1` ends")

    def test_one_json_document_and_nothing_else(self):
        with World([7 * GIB]) as world:
            world.nature()
            options, command = maps_and_command(world, "plain")
            outcome = world.run([*options, "--json"], command)
            self.assertEqual(outcome.code, 0, str(outcome))
            self.assertEqual(outcome.out.count(b"\n"), 1)
            document = json.loads(outcome.out)
            self.assertEqual(document["schema"], 1)
            self.assertEqual(document["exit_code"], 0)
            self.assertEqual([line["try"] for line in document["tries"]],
                             [line["try"] for line in outcome.history()])
            self.assertEqual(document["tries"], outcome.history())
            self.assertIn("batch 24 x 2", outcome.err, "the command's own output")


class Misfortunes(RunTest):
    """A part of Headroom is broken: the child runs on, and the user is told."""

    def through(self, world, prepare=None, options=(), code=7, **variables):
        """A child that works while `prepare` breaks something, and ends with `code`."""
        gate = world.folder / "gate"
        program = f"echo begun; while [ ! -e {gate} ]; do sleep 0.01; done; echo done; exit {code}"
        started = world.start(list(options), ["sh", "-c", program], **variables)
        until(lambda: b"begun" in started.out, f"the child\n{started.err}")
        if prepare:
            prepare()
        gate.touch()
        outcome = started.wait()
        self.assertEqual(outcome.code, code, str(outcome))
        self.assertEqual(outcome.out, b"begun\ndone\n")
        return outcome

    def break_the_driver(self, world, fault):
        world.faults(fault)
        before = world.calls()
        until(lambda: world.calls() > before + 1, "a call that fails")

    def test_a_card_that_is_lost(self):
        with World() as world:
            outcome = self.through(world, lambda: self.break_the_driver(
                world, {"function": "nvmlDeviceGet*", "do": "GPU_IS_LOST"}))
            self.assert_one_try(outcome, 7)

    def test_a_driver_that_hangs(self):
        with World() as world:
            def prepare():
                world.faults({"function": "nvmlDeviceGet*", "do": "hang"})
                before = world.calls()
                until(lambda: world.calls() > before, "a call that hangs")
            self.assert_one_try(self.through(world, prepare), 7)

    def test_a_driver_that_fails_from_the_beginning(self):
        for fault in ("GPU_IS_LOST", "UNKNOWN", "NO_PERMISSION"):
            with self.subTest(fault=fault), World() as world:
                world.faults({"function": "nvmlDeviceGetMemoryInfo*", "do": fault})
                outcome = world.run(["--timeout", "1s"], ["touch", "started"])
                self.assertIn(outcome.code, (69, 75), str(outcome))
                self.assertTrue(outcome.own_words(), "says why")
                self.assertFalse((world.folder / "started").exists())

    def test_no_driver(self):
        with World() as world:
            outcome = world.run([], ["touch", "started"], HEADROOM_NVML="/nowhere/libnvidia-ml.so")
            self.assertEqual(outcome.code, 69, str(outcome))
            self.assertTrue(outcome.own_words())
            self.assertFalse((world.folder / "started").exists())

    def test_a_state_folder_that_cannot_be_written(self):
        with World() as world:
            (world.folder / "file").touch()
            outcome = self.through(world, HEADROOM_STATE_DIR=str(world.folder / "file"))
            self.assert_one_try(outcome, 7)

    def test_nothing_can_be_remembered(self):
        with World([7 * GIB]) as world:
            (world.folder / "file").touch()
            world.nature()
            options, command = maps_and_command(world, "plain")
            outcome = world.run(options, command, HEADROOM_STATE_DIR=str(world.folder / "file"))
            self.assertEqual(outcome.code, 0, str(outcome))
            self.assert_adds_up(world, outcome, 48, 192)
            self.assertIn("file", outcome.own_words(), "a warning")

    def test_a_disk_that_is_full(self):
        with World() as world:
            outcome = self.through(world, options=["--history", "/dev/full"])
            self.assertIn("/dev/full", outcome.own_words())

    def test_an_unwritable_history_is_reported_before_the_start(self):
        with World() as world:
            (world.folder / "file").touch()
            outcome = world.run(["--history", "file/history.ndjson"], ["touch", "started"])
            self.assertEqual(outcome.code, 73, str(outcome))
            self.assertIn("file/history.ndjson", outcome.err)
            self.assertFalse((world.folder / "started").exists())

    @unittest.skipIf(any(name.endswith("SAN_OPTIONS") for name in os.environ),
                     "sanitizers want to be loaded first")
    def test_a_clock_that_is_set(self):
        for jump in (-86400, 86400):
            with self.subTest(jump=jump), World() as world:
                clock = world.folder / "clock"
                outcome = self.through(world, lambda: clock.write_text(str(jump)), ["--stall", "1h"],
                                       LD_PRELOAD=run_world.CLOCK_JUMP, CLOCK_JUMP_FILE=str(clock))
                self.assertEqual([line["exit_code"] for line in outcome.history()], [7])
                self.assertEqual(outcome.own_words(), "", "nothing has stalled")

    def test_no_folder_for_leases(self):
        with World() as world:
            (world.folder / "file").touch()
            outcome = world.run([], ["touch", "started"],
                                HEADROOM_LEASE_DIR=str(world.folder / "file"))
            self.assertTrue(outcome.own_words(), "a warning or an error")
            self.assertEqual(outcome.code == 0, (world.folder / "started").exists())
            self.assertIn(outcome.code, (0, 73), str(outcome))

    def test_our_own_error_stream_is_full(self):
        """Headroom's own messages are lost; the child's exit code is not."""
        with World() as world, open("/dev/full", "w") as full:
            words = [run_world.HEADROOM, "run", "--history", "/dev/full", "--", "sh", "-c", "exit 7"]
            code = subprocess.run(words, stderr=full, stdout=subprocess.DEVNULL, check=False,
                                  env=world.environment(), cwd=world.folder).returncode
            self.assertEqual(code, 7)


if __name__ == "__main__":
    run_world.take_places(sys.argv)
    sys.exit(run_world.run_tests(sys.modules["__main__"]))

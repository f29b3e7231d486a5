#!/usr/bin/env python3
"""`headroom run` beside others and over time: leases, neighbours, what is remembered, what may be
changed, and that no process is left behind.

    run_places_test.py HEADROOM FAKE_NVML CLOCK_JUMP [word...]
"""
import json
import os
import signal
import sys

import run_world
from run_world import GIB, RunTest, World, pretend_card, until

ACCUMULATION = ["--map", "--accum=accumulation"]
MAPS = ["--map", "--batch-size=batch", *ACCUMULATION]
SETTINGS = ["--batch-size", "24", "--accum", "2"]
SLIM = {"fixed": 1 << 30, "per_sample": 128 << 20}  # 4 GiB with a batch of 24


class Ladder(RunTest):
    def test_a_batch_without_accumulation_is_not_changed_silently(self):
        with World([7 * GIB]) as world:
            world.nature()
            outcome = world.run(["--map", "--batch-size=batch"], world.plain(*SETTINGS))
            self.assertEqual(outcome.code, 76, str(outcome))
            history = outcome.history()
            self.assertEqual([line["batch"] for line in history], [24])
            self.assertEqual(history[0]["verdict"], "gpu_oom")
            self.assertIn("accumulation", outcome.own_words(), "says what to map")

    def test_nothing_mapped(self):
        with World([7 * GIB]) as world:
            world.nature()
            outcome = world.run([], world.plain(*SETTINGS))
            self.assertEqual(outcome.code, 76, str(outcome))
            self.assertEqual(len(outcome.history()), 1)
            self.assertIn("--map", outcome.err, "says how to go on")

    def test_it_stops_at_the_minimum(self):
        with World([7 * GIB]) as world:
            world.nature()
            outcome = world.run([*MAPS, "--min-batch", "12"], world.plain(*SETTINGS))
            self.assertEqual(outcome.code, 76, str(outcome))
            batches = [line["batch"] for line in outcome.history()]
            self.assertEqual((batches[0], batches[-1]), (24, 12), str(outcome))

    def test_it_stops_after_so_many_retries(self):
        with World([1 * GIB]) as world:
            world.nature()
            for retries in (0, 1):
                outcome = world.run([*MAPS, "--max-retries", str(retries)], world.plain(*SETTINGS))
                self.assertEqual(outcome.code, 76, str(outcome))
                self.assertEqual(len(outcome.history()), retries + 1, str(outcome))

    def test_a_variable(self):
        with World([7 * GIB]) as world:
            world.nature()
            script = 'exec "$@" --batch-size "$BATCH" --accum "$ACCUM"'
            outcome = world.run(["--map", "env:BATCH=batch", "--map", "env:ACCUM=accumulation"],
                                ["sh", "-c", script, "sh", *world.plain()], BATCH="24", ACCUM="2")
            self.assertEqual(outcome.code, 0, str(outcome))
            self.assertGreater(len(outcome.history()), 1)
            self.assert_adds_up(world, outcome, 48, 192)

    def test_a_json_file_is_as_it_was(self):
        script = ("import json, os, sys; c = json.load(open('c.json'))['train'];"
                  "os.execv(sys.argv[1], sys.argv[1:] + ['--batch-size', str(c['batch']),"
                  "'--accum', str(c['accum'])])")
        text = '{\n    "name" : "é", "train": {"batch":24,\n "accum": 2}, "lr": 1e-4}'
        with World([7 * GIB]) as world:
            world.nature()
            (world.folder / "c.json").write_text(text)
            outcome = world.run(["--map", "c.json:train.batch=batch", "--map",
                                 "c.json:train.accum=accumulation"],
                                [sys.executable, "-c", script, *world.plain()])
            self.assertEqual(outcome.code, 0, str(outcome))
            self.assertGreater(len(outcome.history()), 1)
            self.assert_adds_up(world, outcome, 48, 192)
            self.assertEqual((world.folder / "c.json").read_text(), text)

    def test_a_file_is_as_it_was_after_a_signal(self):
        text = "training: {}\n".format("\n  batch_size: 24  # paper\n  accum: 2")
        with World([7 * GIB]) as world:
            world.nature(gate=str(world.folder / "gate"))
            (world.folder / "c.yaml").write_text(text)
            started = world.start(["--map", "c.yaml:training.batch_size=batch", "--map",
                                   "c.yaml:training.accum=accumulation"],
                                  world.hydra("--config-path", "c.yaml"))
            until(lambda: world.in_step(1), "a step with a smaller batch")
            self.assertNotEqual((world.folder / "c.yaml").read_text(), text)
            started.process.send_signal(signal.SIGTERM)
            self.assertEqual(started.wait().code, 143)
            self.assertEqual((world.folder / "c.yaml").read_text(), text)

    def test_the_newest_checkpoint(self):
        with World([7 * GIB]) as world:
            world.nature(save_every=1, full_from=2)
            outcome = world.run([*MAPS, "--resume-arg", "--resume {}", "--checkpoints",
                                 "out/checkpoint-*.json"], world.plain(*SETTINGS))
            self.assertEqual(outcome.code, 0, str(outcome))
            first, *_, last = outcome.history()
            self.assertIsNone(first["resumed_from"])
            self.assertIn("checkpoint-1.json", last["resumed_from"], str(outcome))
            self.assertIn("--resume", last["command"])
            self.assertIn(96, [line.get("begins_at") for line in world.log()])
            self.assert_adds_up(world, outcome, 48, 192)

    def test_what_worked_is_remembered(self):
        with World([7 * GIB]) as world:
            world.nature()
            first = world.run(MAPS, world.plain(*SETTINGS))
            (world.out / "log.jsonl").unlink()
            second = world.run(MAPS, world.plain(*SETTINGS))
            self.assertEqual((first.code, second.code), (0, 0), f"{first}{second}")
            self.assertGreater(len(first.history()), 1)
            self.assertEqual([line["batch"] for line in second.history()],
                             [first.history()[-1]["batch"]], str(second))
            self.assert_adds_up(world, second, 48, 192)

    def test_settings_of_another_command_are_not_used(self):
        with World([7 * GIB]) as world:
            world.nature()
            self.assertEqual(world.run(MAPS, world.plain(*SETTINGS)).code, 0)
            world.nature(**SLIM)
            other = world.run(MAPS, world.plain(*SETTINGS, "--samples", "96"))
            self.assertEqual([line["batch"] for line in other.history()], [24], str(other))


    def test_another_card_has_more_room(self):
        with World([7 * GIB, 24 * GIB]) as world:
            world.nature()
            outcome = world.run([*MAPS, "--min-batch", "24", "--need", "6GiB", "--order", "index"],
                                world.plain(*SETTINGS))
            self.assertEqual(outcome.code, 0, str(outcome))
            self.assertEqual([line["gpus"][0][-1] for line in outcome.history()], ["0", "1"])
            self.assertEqual([line["batch"] for line in outcome.history()], [24, 24])
            self.assertIn("trying again with more memory: GPU 1", outcome.own_words())
            self.assert_adds_up(world, outcome, 48, 192)

    def test_forget_begins_anew(self):
        with World([7 * GIB]) as world:
            world.nature()
            self.assertEqual(world.run(MAPS, world.plain(*SETTINGS)).code, 0)
            anew = world.run([*MAPS, "--forget"], world.plain(*SETTINGS))
            self.assertEqual(anew.code, 0, str(anew))
            self.assertEqual(anew.history()[0]["batch"], 24, str(anew))

    def test_the_document_has_the_last_out_of_memory(self):
        with World([7 * GIB]) as world:
            world.nature()
            outcome = world.run([*MAPS, "--json", "--min-batch", "24"], world.plain(*SETTINGS))
            self.assertEqual(outcome.code, 76, str(outcome))
            document = json.loads(outcome.out)
            told = document["out_of_memory"]
            self.assertEqual(told["tries"][-1]["batch"], 24)
            self.assertEqual(told["tries"][-1]["accumulation"], 2)
            self.assertEqual(told["why_no_change"], document["why"])
            self.assertIn("batch 24 is the smallest that may be tried", document["why"])

    def test_more_memory_than_before_is_used(self):
        with World([7 * GIB]) as world:
            world.nature()
            self.assertEqual(world.run(MAPS, world.plain(*SETTINGS)).code, 0)
            with pretend_card.machine(world.box) as state:
                state["cards"][0]["total"] = 24 * GIB
            world.nature(full_from=0)
            later = world.run(MAPS, world.plain(*SETTINGS))
            self.assertEqual([line["batch"] for line in later.history()], [24], str(later))

    def test_it_waits_for_the_memory_that_it_used_before(self):
        with World([24 * GIB]) as world:
            world.nature(gate=str(world.folder / "gate"))
            first = world.start([], world.plain(*SETTINGS))
            until(lambda: world.in_step(1), "a step")
            # Each sample asks for the card's processes; the second from now on has seen it whole, and
            # the one after that says that it was taken.
            before = world.calls("ComputeRunningProcesses")
            until(lambda: world.calls("ComputeRunningProcesses") >= before + 3, "samples of it")
            (world.folder / "gate").touch()
            self.assertEqual(first.wait().code, 0)
            world.neighbour(0, 13 * GIB)
            second = world.run(["--timeout", "1s"], world.plain(*SETTINGS))
            self.assertEqual(second.code, 75, str(second))
            self.assertIn("from its use in earlier runs", second.err)

    def test_a_file_that_another_program_changed_ends_the_run_with_a_report(self):
        with World([24 * GIB]) as world:
            (world.folder / "c.yaml").write_text("batch: 24\naccum: 2\n")
            oom = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has "
                   "a total capacity of 24.00 GiB of which 1.00 GiB is free.")
            outcome = world.run(["--map", "c.yaml:batch=batch", "--map", "c.yaml:accum=accumulation"],
                                ["sh", "-c", f"echo '# mine' >> c.yaml; echo '{oom}' >&2; exit 1"])
            self.assertEqual(outcome.code, 76, str(outcome))
            self.assertEqual([line["batch"] for line in outcome.history()], [24, 16], str(outcome))
            self.assertIn("was changed by another program", outcome.own_words())
            self.assertIn("# mine\n", (world.folder / "c.yaml").read_text(), "stays as it is")
            kept = (world.folder / "c.yaml.headroom-original").read_text()
            self.assertTrue(kept.startswith("batch: 24\naccum: 2\n"), kept)

    def test_a_checkpoint_within_a_shells_text(self):
        with World([7 * GIB]) as world:
            world.nature(save_every=1, full_from=2)
            words = " ".join([*world.plain(*SETTINGS), "> trainer.log 2>&1; code=$?; "
                              "cat trainer.log; exit $code"])
            outcome = world.run([*MAPS, "--resume-arg", "--resume {}", "--checkpoints",
                                 "out/checkpoint-*.json"], ["bash", "-c", words])
            self.assertEqual(outcome.code, 0, str(outcome))
            self.assertIn("--resume out/checkpoint-", outcome.history()[-1]["command"][2])
            self.assert_adds_up(world, outcome, 48, 192)

    def test_a_batch_that_will_stay_is_reported_at_the_start(self):
        with World([24 * GIB]) as world:
            world.nature(**SLIM)
            outcome = world.run(["--map", "--batch-size=batch"], world.plain(*SETTINGS))
            self.assertEqual(outcome.code, 0, str(outcome))
            self.assertIn("--batch-size will not be changed", outcome.own_words())


class Leases(RunTest):
    def test_a_second_job_waits_for_the_first(self):
        with World() as world:
            world.nature(gate=str(world.folder / "gate"), **SLIM)
            first = world.start(["--need", "16GiB"], world.plain(*SETTINGS))
            until(lambda: world.in_step(1), f"the first job\n{first.err}")
            second = world.start(["--need", "16GiB"], ["touch", "second"])

            def waits():
                document = json.loads(world.headroom("queue", "--json").stdout)
                return document["waiting"]
            waiting = until(waits, f"the second job in the queue\n{second.err}")
            self.assertEqual(waiting[0]["need_bytes"], 16 * GIB)
            self.assertEqual(waiting[0]["pid"], second.process.pid)
            leases = json.loads(world.headroom("who", "--json").stdout)["leases"]
            self.assertEqual([lease["reserved_bytes"] for lease in leases], [16 * GIB])
            self.assertFalse((world.folder / "second").exists())
            (world.folder / "gate").touch()
            self.assertEqual(first.wait().code, 0)
            self.assertEqual(second.wait().code, 0)
            self.assertTrue((world.folder / "second").exists())
            leases = json.loads(world.headroom("lease", "list", "--json").stdout)
            self.assertEqual((leases["leases"], leases["waiting"]), ([], []))

    def test_a_lease_outlives_headroom_and_not_the_job(self):
        with World() as world:
            world.nature(gate=str(world.folder / "gate"), **SLIM)
            started = world.start(["--need", "16GiB"], world.plain(*SETTINGS))
            until(lambda: world.in_step(1), "the job")
            os.kill(started.process.pid, signal.SIGKILL)
            started.process.wait()

            def leases():
                return json.loads(world.headroom("lease", "list", "--json").stdout)["leases"]
            child = world.pids()[0]
            if pretend_card.alive(child):
                self.assertEqual(len(leases()), 1, "the job still works")
                os.kill(child, signal.SIGKILL)
            until(lambda: not pretend_card.alive(child) and leases() == [], "the end of the lease")

    def test_a_timeout(self):
        with World() as world:
            world.neighbour(0, 20 * GIB)
            outcome = world.run(["--need", "16GiB", "--timeout", "500ms"], ["touch", "started"])
            self.assertEqual(outcome.code, 75, str(outcome))
            self.assertIn("short by", outcome.own_words())
            self.assertFalse((world.folder / "started").exists())

    def test_more_than_any_card_has(self):
        with World() as world:
            outcome = world.run(["--need", "100GiB"], ["touch", "started"])
            self.assertIn(outcome.code, (69, 75), str(outcome))
            self.assertTrue(outcome.own_words())
            self.assertFalse((world.folder / "started").exists())

    def test_the_job_sees_its_card_only(self):
        with World([8 * GIB, 24 * GIB]) as world:
            show = 'echo "$CUDA_DEVICE_ORDER $CUDA_VISIBLE_DEVICES"'
            outcome = world.run(["--need", "16GiB"], ["sh", "-c", show])
            self.assertEqual(outcome.out, b"PCI_BUS_ID 1\n", str(outcome))
            self.assertEqual(len(outcome.history()[0]["gpus"]), 1)
            self.assertTrue(outcome.history()[0]["gpus"][0].endswith("1"))

    def test_two_jobs_share_a_card_that_has_room_for_both(self):
        with World() as world:
            gate = str(world.folder / "gate")
            world.nature(gate=gate, **SLIM)
            jobs = [world.start(["--need", "8GiB"], [*world.plain(*SETTINGS)]) for _ in range(2)]
            until(lambda: sum(line.get("step") == 0 for line in world.log()) == 2, "both jobs")
            (world.folder / "gate").touch()
            self.assertEqual([job.wait().code for job in jobs], [0, 0])


class Neighbours(RunTest):
    def test_a_neighbour_takes_memory_meanwhile(self):
        for cards in ([16 * GIB], [16 * GIB, 16 * GIB]):
            with self.subTest(cards=len(cards)), World(cards) as world:
                world.nature(gate=str(world.folder / "gate"), full_from=1, save_every=1)
                options = [*MAPS, "--resume-arg", "--resume {}", "--checkpoints",
                           "out/checkpoint-*.json"]
                started = world.start(options, world.plain(*SETTINGS))
                until(lambda: world.in_step(1), "the first step")
                card = next(i for i, c in enumerate(self.cards(world)) if c.get("processes"))
                world.neighbour(card, 6 * GIB)
                (world.folder / "gate").touch()
                outcome = started.wait()
                self.assertEqual(outcome.code, 0, str(outcome))
                history = self.assert_history(outcome, 0)
                self.assertGreater(len(history), 1)
                self.assertEqual(history[0]["verdict"], "gpu_oom")
                for line in history:
                    self.assertEqual(line["batch"] * line["accumulation"], 48)
                self.assert_adds_up(world, outcome, 48, 192)

    def cards(self, world):
        with pretend_card.machine(world.box) as state:
            return state["cards"]


class Trees(RunTest):
    def test_orphans_of_ranks_are_ended_before_the_next_try(self):
        with World([14 * GIB]) as world:
            # Rank 0 needs more and is out of memory; rank 1 hangs, and its launcher is gone.
            world.nature(leave_orphans=True, first_rank_more=0.5)
            outcome = world.run(MAPS, world.ranks("--batch-size", "12", "--accum", "2"))
            self.assertEqual(outcome.code, 0, str(outcome))
            self.assertGreater(len(outcome.history()), 1)
            self.assert_adds_up(world, outcome, 48, 192)
            self.assert_nobody_left(world)
            self.assertEqual(world.held(), [])

    def test_processes_that_a_command_leaves_behind_are_ended(self):
        with World() as world:
            outcome = world.run([], ["sh", "-c", "sleep 1000 & echo $! > out/pids; exit 4"])
            self.assert_one_try(outcome, 4)
            self.assertEqual(len(world.pids()), 1)
            self.assert_nobody_left(world)

    def test_a_daemon_of_the_command_is_ended(self):
        """It has a session of its own and another parent."""
        with World() as world:
            daemon = "setsid sh -c 'echo $$ > out/pids; exec sleep 1000' & "
            wait = "while [ ! -s out/pids ]; do sleep 0.01; done; exit 4"
            outcome = world.run([], ["sh", "-c", daemon + wait])
            self.assert_one_try(outcome, 4)
            self.assertEqual(len(world.pids()), 1)
            self.assert_nobody_left(world)


class Stalls(RunTest):
    SILENT = "while [ ! -e gate ]; do sleep 0.01; done; exit 9"

    def test_one_is_reported_and_not_ended(self):
        with World() as world:
            started = world.start(["--stall", "300ms"], ["sh", "-c", self.SILENT])
            until(lambda: "headroom run: " in started.err, "a word about the stall")
            self.assertIsNone(started.process.poll())
            (world.folder / "gate").touch()
            self.assert_one_try(started.wait(), 9)

    def test_one_is_ended_if_asked(self):
        with World() as world:
            outcome = world.run(["--stall", "300ms", "--end-stalled"], ["sh", "-c", self.SILENT])
            self.assertEqual(len(outcome.history()), 1)
            self.assertEqual(outcome.code, 143, str(outcome))
            self.assertTrue(outcome.own_words())


if __name__ == "__main__":
    run_world.take_places(sys.argv)
    sys.exit(run_world.run_tests(sys.modules["__main__"]))

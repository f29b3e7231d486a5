"""Headroom's own tools in programs that run anywhere: on cards that are shown as CUDA's, on a machine without a GPU,
and after an out-of-memory."""
import importlib
import json
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import torch
from torch import nn

import headroom

GIB = 2**30


def lines():
    said = []
    return said, said.append


class OnCardsThatAreShownAsCuda(unittest.TestCase):
    """A script that followed the guide could not be rehearsed: find_best_device gave sim:0, and GpuMemoryScope refused
    cuda:0, for which there was no driver."""

    def setUp(self):
        self.cards = headroom.as_cuda("2xRTX 4090")
        self.net = nn.Linear(1024, 1024).cuda()

    def tearDown(self):
        self.cards.end()

    def step(self):
        self.net(torch.randn(8, 1024, device="cuda")).sum().backward()

    def test_devices_have_cudas_names(self):
        self.assertEqual(str(headroom.find_best_device("1GiB")), "cuda:1")  # the one that is empty
        self.assertEqual(str(headroom.wait_for_gpu("1GiB")), "cuda:1")
        with self.assertRaisesRegex(headroom.BusyError, "best is cuda:1"):
            headroom.find_best_device("80GiB", allow_cpu=False)
        self.assertEqual(str(headroom.card_of("cuda:0").device), "cuda:0")
        with self.assertWarns(UserWarning):
            self.assertEqual(str(headroom.find_best_device("80GiB")), "cpu")

    def test_the_cards_are_those_of_the_machine(self):
        found = headroom.gpus()
        self.assertEqual([one.index for one in found], [0, 1])
        self.assertEqual(found[0].uuid, f"GPU-{torch.cuda.get_device_properties(0).uuid}")
        self.assertEqual(found[0].free, torch.cuda.mem_get_info(0)[0])
        self.assertEqual(len(headroom.get_gpu_info()), 2)
        self.assertEqual([one.cuda_index for one in headroom.select_gpus("1GiB", count=2)], [1, 0])
        with self.assertRaises(headroom.UnavailableError):
            headroom.select_gpus("80GiB")

    def test_scopes_and_logs(self):
        said, tell = lines()
        with headroom.GpuMemoryScope("forward", sink=tell) as scope:
            self.step()
        self.assertGreater(scope.use.peak_rise, 4 << 20)
        headroom.log_gpu_memory_stats("after sim:0", sink=tell)
        headroom.log_gpu_memory_stats("", 1, sink=tell)
        self.assertRegex(said[0], "^forward: cuda:0 allocated .*MiB")
        self.assertRegex(said[1], "^after sim:0: cuda:0 allocated")
        self.assertRegex(said[2], "^cuda:1 allocated 0 B")

    def test_figures(self):
        self.step()
        for device in (None, 0, "cuda", "cuda:0", torch.device("cuda", 0)):
            stats = headroom.get_gpu_memory_stats(device)
            self.assertEqual((str(stats.device), stats.allocated), ("cuda:0", torch.cuda.memory_allocated()))
        self.assertEqual(headroom.get_memory_snapshot()["device"], "cuda:0")
        self.assertTrue(headroom.memory_summary().startswith("Memory of cuda:0: "))
        headroom.reset_peak_memory_stats()
        self.assertEqual(torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated())

    def test_clearing(self):
        del self.net
        kept = [torch.empty(1 << 20, device="cuda") for _ in range(20)]
        cleared = headroom.clear_gpu_memory(force=True)
        self.assertEqual([one["device"] for one in cleared.devices], ["cuda:0", "cuda:1"])
        self.assertEqual(cleared.lingering[0], "cuda:0 4.0 MiB, 20 times")
        self.assertIn("record_history", cleared.lingering[-1])
        del kept

    def test_histories_dry_runs_and_batches(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "memory.json")
            with headroom.record_history(path):
                self.step()
            with open(path, encoding="utf-8") as file:
                self.assertTrue(json.load(file))
        self.assertEqual(headroom.dry_run(self.step, model=self.net, device="cuda:0").peak.phase, "backward")
        found = headroom.find_max_batch_size(self.net, lambda n: torch.randn(n, 1024), "cuda:0", max_batch=8)
        self.assertTrue(found.capped)

    def test_an_estimate_beside_them_leaves_them_as_they_are(self):
        with unittest.mock.patch("torch.save", side_effect=AssertionError("a rehearsal writes no data")):
            self.assertTrue(headroom.estimate(nn.Linear(8, 8), torch.randn(4, 8)).fits)
        with self.assertRaisesRegex(headroom.UsageError, "in as_cuda or a rehearsal"):
            headroom.simulate("1GiB")
        self.step()

    def test_the_summary_of_torch_is_torchs(self):
        table = torch.cuda.memory_summary()
        self.assertIn("PyTorch CUDA memory summary, device ID 0", table)
        self.assertIn("| Allocated memory      |", table)


class WithoutAGpu(unittest.TestCase):
    """A training script broke on a laptop because it logs: eight functions raised UsageError."""

    def test_nothing_raises(self):
        said, tell = lines()
        with headroom.GpuMemoryScope("forward", sink=tell) as scope, headroom.GPUMemoryContext("all", sink=tell):
            torch.ones(1000)
        headroom.log_gpu_memory_stats("after epoch 3", sink=tell)
        headroom.reset_peak_memory_stats()
        no_gpu = "no GPU, and the CPU's memory is not counted"
        self.assertEqual(said, [f"all: {no_gpu}", f"forward: {no_gpu}", f"after epoch 3: {no_gpu}"])
        self.assertEqual(scope.use.peak_rise, 0)
        self.assertEqual(headroom.memory_summary(), f"Memory: {no_gpu}\n")
        self.assertEqual(headroom.clear_gpu_memory(force=True).lingering, [])

    def test_no_memory_of_a_gpu_is_0_and_what_is_unknown_is_none(self):
        for device in (None, "cpu", torch.device("cpu")):
            stats = headroom.get_gpu_memory_stats(device)
            self.assertEqual((stats.device, stats.allocated, stats.max_reserved, stats.ooms), (None, 0, 0, 0))
            self.assertEqual((stats.free, stats.total), (None, None))
        snapshot = headroom.get_memory_snapshot()
        self.assertEqual((snapshot["device"], snapshot["allocated_gb"], snapshot["total_gb"]), (None, 0, None))

    def test_a_counted_cpu_has_figures(self):
        counting = headroom.CountCpuMemory()
        kept = torch.ones(1000)
        self.assertEqual(headroom.get_gpu_memory_stats().allocated, 4000)
        with headroom.GpuMemoryScope("more") as scope:
            torch.ones(2000)
        self.assertEqual(scope.use.peak_rise, 8000)
        del kept, counting

    def test_a_card_that_is_not_there_is_still_refused(self):
        with self.assertRaisesRegex(headroom.UsageError, "where there is no GPU"):
            headroom.get_gpu_memory_stats(0)


class Failing:
    """Runs out of memory this often, then returns."""

    def __init__(self, times):
        self.left, self.sizes = times, []

    def __call__(self, *sizes):
        self.sizes += sizes or [None]
        if self.left > 0:
            self.left -= 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return "done"


class AfterAnOutOfMemory(unittest.TestCase):
    def test_the_batch_is_tried_again_then_halved_down_to_the_least(self):
        said, tell = lines()
        handler, function = headroom.OomHandler(64, 12, grow_after=1, sink=tell), Failing(4)
        self.assertEqual(handler.run(function), "done")
        self.assertEqual(function.sizes, [64, 64, 32, 16, 12])
        self.assertEqual(handler.batch_size, 12)
        self.assertEqual(said[1], "out of memory at a request of 2.00 GiB; the function runs again from its start with "
                                  "batch 32, and nothing that it did is undone")
        for size in (12, 24, 48, 64):  # grows after each call that ran through
            self.assertEqual(handler.run(lambda batch: batch), size)

    def test_the_last_failure_is_raised_itself(self):
        with self.assertRaises(torch.OutOfMemoryError):
            headroom.adaptive_batch_training(Failing(99), 8, 4, sink=None)
        with self.assertRaises(torch.OutOfMemoryError):
            headroom.retry_on_oom(Failing(4), sink=None)()
        self.assertEqual(headroom.retry_on_oom(Failing(3), sink=None)(), "done")

    def test_a_bug_is_never_run_again(self):
        calls = []

        @headroom.retry_on_oom(max_retries=5)
        def wrong():
            calls.append(1)
            raise ValueError("no out of memory")

        with self.assertRaises(ValueError):
            wrong()
        self.assertEqual(len(calls), 1)

    def test_the_tensors_of_the_failed_call_are_gone_before_the_next(self):
        with headroom.simulate("1GiB"):
            def train(batch):
                held = [torch.empty(batch << 20, dtype=torch.uint8, device="sim") for _ in range(10)]
                return len(held) * batch

            self.assertEqual(headroom.adaptive_batch_training(train, 256, sink=None), 640)
            self.assertEqual(torch.sim.memory_allocated(), 0)

    def test_accelerates_decorator(self):
        function = Failing(2)
        self.assertEqual(headroom.find_executable_batch_size(function, starting_batch_size=16)("a"), "done")
        self.assertEqual(function.sizes, [16, "a", 16, "a", 8, "a"])

    def test_sizes_that_make_no_sense_are_refused(self):
        for wrong in (lambda: headroom.OomHandler(4, 8), lambda: headroom.OomHandler(4, 0),
                      lambda: headroom.retry_on_oom(max_retries=-1)):
            self.assertRaises(headroom.UsageError, wrong)
        self.assertIs(headroom.OOMHandler, headroom.OomHandler)


class NamesThatScriptsLookFor(unittest.TestCase):
    """They ended with "No module named 'headroom.guard'" and a bare AttributeError."""

    def test_each_way_to_ask_is_answered(self):
        with self.assertRaisesRegex(AttributeError, "try headroom.OomHandler and headroom.retry_on_oom"):
            headroom.guard
        self.assertFalse(hasattr(headroom, "protect"))
        with self.assertRaisesRegex(ImportError, "headroom run -- python train.py"):
            importlib.import_module("headroom.guard")
        with self.assertRaisesRegex(ImportError, "from its start"):
            from headroom import protect  # noqa: F401
        with self.assertRaisesRegex(AttributeError, "torch.OutOfMemoryError"):
            headroom.OutOfMemoryError

    def test_a_near_name_is_proposed(self):
        with self.assertRaisesRegex(AttributeError, "try headroom.find_max_batch_size"):
            headroom.find_max_batchsize
        with self.assertRaisesRegex(ModuleNotFoundError, "No module named 'headroom.nothing'"):
            importlib.import_module("headroom.nothing")

    def test_the_restarts_need_no_torch(self):
        code = ("import sys, headroom\n"
                "def f(batch):\n  if batch > 8: raise MemoryError\n  return batch\n"
                "print(headroom.adaptive_batch_training(f, 32, sink=None), 'torch' in sys.modules)")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.strip(), "8 False")


class WordsOfErrors(unittest.TestCase):
    def test_a_preset_is_not_a_model(self):
        with self.assertRaisesRegex(headroom.UsageError, "received '7B'; try .*headroom estimate 7B"):
            headroom.estimate_training_memory("7B", 1)

    def test_an_error_names_the_function_that_was_called(self):
        with self.assertRaisesRegex(headroom.UsageError, r"^\[get_optimal_batch_size\] expected a GPU"):
            headroom.get_optimal_batch_size(nn.Linear(2, 2), lambda n: torch.randn(n, 2))

    def test_a_profile_shows_itself(self):
        with headroom.profile() as profile:
            torch.ones(10) + 1
        self.assertIn("aten::add", repr(profile))


if __name__ == "__main__":
    unittest.main()

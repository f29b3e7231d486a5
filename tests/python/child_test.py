"""Estimates where the process cannot make a card of its own: it simulates a box, has used CUDA (which is
pretended here), or is a fork. They run in a child process, and the box stays as it is."""
import dataclasses
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import traceback
import types
import unittest
from unittest import mock

import torch
from torch import nn

import headroom
from headroom import child, estimates, memory, room, subjects

GIB = 2**30
BUILD = pathlib.Path(__file__).resolve().parents[2] / os.environ.get("HEADROOM_BUILD", "build")
FAKE_NVML = BUILD / "lib" / "libfake_nvml.so"


class Net(nn.Module):
    """Of this very program, which a child does not import."""

    def __init__(self, width=1024):
        super().__init__()
        self.first = nn.Linear(width, 4 * width)
        self.last = nn.Linear(4 * width, width)
        self.register_buffer("positions", torch.arange(8))
        self.scale = torch.tensor(2.0)

    def forward(self, x):
        return self.last(torch.relu(self.first(x))) * self.scale


class OwnError(Exception):
    pass


def rows(count):
    return torch.ones(count, 1024)


def used_cuda():
    return mock.patch("torch.cuda.is_initialized", return_value=True)


def without_time(report):
    return {**report.document(), "took_s": None}


def state_of(box):
    return [(headroom.get_gpu_memory_stats(card.device), card._card.requests, card.mode, card.rules,
             card.values_read_as_zero) for card in box]


class BesideABox(unittest.TestCase):
    def setUp(self):
        self.alone = headroom.estimate(Net(), rows(8), gpu="RTX 4090")
        self.box = headroom.simulate("2xRTX 4090")
        self.addCleanup(self.box.end)

    def largest(self, **more):
        return headroom.find_max_batch_size(Net(), rows, max_batch=10**6, **more)

    def test_an_estimate_is_the_same_and_leaves_the_box_alone(self):
        net = Net().to("sim:0")
        x = rows(8).to("sim:0")
        net(x).mean().backward()
        before = state_of(self.box)
        for model, batch in ((Net(), rows(8)), (net, x)):
            report = headroom.estimate(model, batch, gpu="RTX 4090")
            self.assertEqual(without_time(report), without_time(self.alone))
            self.assertEqual(str(report), str(self.alone))
        self.assertEqual(state_of(self.box), before)
        net(x).mean().backward()

    def test_functions_make_model_and_batch_there(self):
        beside = headroom.estimate(Net, lambda: rows(8))
        self.box.end()
        self.assertEqual(without_time(beside), without_time(headroom.estimate(Net, lambda: rows(8))))

    def test_torch_is_set_there_as_here(self):
        self.addCleanup(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float64)
        parts = headroom.estimate(Net, lambda: rows(8)).at_peak
        self.assertEqual(parts.parameters, 8 * sum(one.numel() for one in Net().parameters()))

    def test_whole_numbers_are_known_there(self):
        def loss(model, batch):
            x, mask = batch
            if not mask.all():
                raise OwnError("the mask is not known")
            return model(x).mean()
        batch = (rows(8), torch.ones(8, dtype=torch.long, device="sim:1"))
        self.assertEqual(headroom.estimate(Net(), batch, loss=loss).values_read_as_zero, 0)

    def test_the_familiar_name(self):
        beside = headroom.estimate_training_memory(Net(), 8, create_batch_fn=rows)
        self.box.end()
        self.assertEqual(beside, headroom.estimate_training_memory(Net(), 8, create_batch_fn=rows))

    def test_the_largest_batch_of_an_empty_card_is_that_of_its_kind(self):
        net = Net().to("sim:1")
        before = state_of(self.box)
        found = headroom.find_max_batch_size(net, rows, "sim:1", max_batch=10**6)
        self.assertEqual(state_of(self.box), before)
        self.assertTrue(found.proven)
        self.assertEqual(headroom.get_optimal_batch_size(net, rows, "sim:1", max_batch=10**6),
                         found.recommended)
        self.box.end()
        alone = self.largest(gpu="RTX 4090")
        self.assertEqual((found, found.probes), (alone, alone.probes))

    def test_neighbours_and_other_tensors_take_room(self):
        self.box[0].hold("12GiB")
        other = torch.empty(2 * GIB, dtype=torch.uint8, device="sim:0")
        free = self.box[0].free
        found = self.largest(device="sim:0")
        self.assertGreater(found.probes[-1]["peak_reserved_bytes"], free)
        self.assertLess(max(one["peak_reserved_bytes"] for one in found.probes if one["fits"]), free)
        del other
        torch.sim.empty_cache()
        more = self.largest(device="sim:0")
        self.assertGreater(more, found)
        torch.sim.set_per_process_memory_fraction(0.2, 0)
        self.assertLess(self.largest(device="sim:0"), more // 2)

    def test_what_is_found_trains_on_the_card_and_one_more_does_not(self):
        self.box.end()
        for rules in ("cuda", "cpu"):
            with headroom.simulate("3GiB", rules=rules) as box:
                taken = torch.empty(GIB, dtype=torch.uint8, device="sim")
                net = Net(4096).to("sim")
                optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
                make = lambda n: torch.ones(n, 64, 4096)  # noqa: E731 - 1 MiB a row
                found = headroom.find_max_batch_size(net, make, "sim", optimizer=optimizer)
                self.assertTrue(found.proven)
                for size, fits in ((found, True), (found + 1, False)):
                    x = make(size).to("sim")

                    def step(x=x):
                        optimizer.zero_grad()
                        net(x).mean().backward()
                        optimizer.step()
                    self.assertEqual(headroom.dry_run(step, model=net, inputs=x).fits, fits, rules)
                    del x, step
                    optimizer.zero_grad()
                    torch.sim.empty_cache()
                del taken, box

    def test_what_the_model_and_its_optimizer_hold_is_theirs_to_use(self):
        before = headroom.find_max_batch_size(Net().to("sim:0"), rows, "sim:0", max_batch=10**6)
        net = Net().to("sim:0")
        optimizer = torch.optim.AdamW(net.parameters())
        net(rows(8).to("sim:0")).mean().backward()
        optimizer.step()
        after = headroom.find_max_batch_size(net, rows, "sim:0", max_batch=10**6, optimizer=optimizer)
        self.assertLess(after, before)  # by cuBLAS's workspaces alone
        self.assertGreater(after, 0.995 * before)

    def test_its_exception_comes_through_with_the_place(self):
        def loss(model, batch):
            raise OwnError("labels")
        with self.assertRaisesRegex(OwnError, "labels") as raised:
            headroom.estimate(Net(), rows(8), loss=loss)
        text = "".join(traceback.format_exception(raised.exception))
        self.assertIn('raise OwnError("labels")', text)

    def test_an_exception_that_cannot_travel_is_told(self):
        class Stubborn(Exception):
            def __reduce__(self):
                raise TypeError("no")

        def loss(model, batch):
            raise Stubborn("labels")
        with self.assertRaisesRegex(RuntimeError, "Stubborn: labels"):
            headroom.estimate(Net(), rows(8), loss=loss)

    def test_a_model_that_cannot_be_sent(self):
        net = Net()
        net.lock = threading.Lock()
        with self.assertRaisesRegex(headroom.UsageError, "a model that can be sent.*simulates a box.*lock"):
            headroom.estimate(net, rows(8))
        lock = threading.Lock()
        with self.assertRaisesRegex(headroom.UsageError, "a create_batch_fn that can be sent"):
            headroom.find_max_batch_size(Net(), lambda n: lock and rows(n), "sim:0")

    def test_a_model_that_cannot_be_loaded_there(self):
        hidden = types.ModuleType("hidden")
        hidden.Hidden = type("Hidden", (Net,), {"__module__": "hidden"})
        with mock.patch.dict(sys.modules, hidden=hidden):
            with self.assertRaisesRegex(headroom.UsageError, "can load.*No module named 'hidden'"):
                headroom.estimate(hidden.Hidden(), rows(8))

    def test_a_child_that_dies(self):
        with self.assertRaisesRegex(headroom.UnavailableError, "-9"):
            headroom.estimate(Net(), rows(8),
                              loss=lambda model, batch: os.kill(os.getpid(), signal.SIGKILL))

    def test_a_trace_stays_there(self):
        with self.assertRaisesRegex(headroom.UsageError, "child process"):
            headroom.estimate(Net(), rows(8), trace=True).write_trace("never.hrtrace")


class AfterCuda(unittest.TestCase):
    def test_estimates_run_in_a_child(self):
        alone = headroom.estimate(Net(), rows(8), gpu="RTX 4090")
        largest = headroom.find_max_batch_size(Net(), rows, gpu="RTX 4090")
        with used_cuda(), mock.patch.object(child, "call", wraps=child.call) as called:
            there = headroom.estimate(Net(), rows(8), gpu="RTX 4090")
            self.assertEqual(headroom.find_max_batch_size(Net(), rows, gpu="RTX 4090"), largest)
        self.assertEqual(called.call_count, 2)
        self.assertEqual(without_time(there), without_time(alone))

    def test_without_cloudpickle_it_says_so(self):
        with used_cuda(), mock.patch.multiple(child, cloudpickle=None, Pickler=pickle.Pickler):
            self.assertGreater(headroom.estimate(nn.Linear(8, 8), torch.ones(2, 8)).peak.allocated, 0)
            with self.assertRaisesRegex(headroom.UsageError, "pip install cloudpickle"):
                headroom.estimate(nn.Linear(8, 8), torch.ones(2, 8), loss=lambda *of: of[0].sum())

    def test_small_buffers_are_known(self):
        class Chosen(nn.Linear):
            def __init__(self):
                super().__init__(16, 16)
                self.register_buffer("mask", torch.arange(16) % 3 == 0)

            def forward(self, x):
                return super().forward(x)[:, self.mask]

        alone = headroom.estimate(Chosen(), torch.ones(4, 16))
        with used_cuda():
            self.assertEqual(headroom.estimate(Chosen(), torch.ones(4, 16)).peak.allocated,
                             alone.peak.allocated)

    def test_weights_do_not_travel_and_whole_numbers_do(self):
        net = nn.Sequential(nn.Linear(2048, 2048), nn.Linear(2048, 2048))
        net[1].weight = net[0].weight
        self.assertLess(len(child._bytes(net)), 100_000)
        there, mask = pickle.loads(child._bytes((net, torch.tensor([1, 0, 1]))))
        self.assertIs(there[1].weight, there[0].weight)
        self.assertTrue(there[0].weight.is_meta)
        self.assertEqual(mask.tolist(), [1, 0, 1])


class ARealCard(unittest.TestCase):
    """What the driver says comes from the fake NVML library; what torch says is put in its place."""
    BOX = '''{"cards": [
        {"name": "NVIDIA L4", "uuid": "GPU-5a6e1c5e-0000-4000-8000-000000000000"},
        {"name": "NVIDIA GeForce RTX 4090", "uuid": "GPU-5a6e1c5e-0000-4000-8000-000000000001",
         "total": "24564MiB", "reserved": "357MiB", "used": "1GiB"},
        {"name": "NVIDIA Prototype", "uuid": "GPU-5a6e1c5e-0000-4000-8000-000000000002",
         "total": "10GiB"}]}'''

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        box = pathlib.Path(folder.name) / "box.json"
        box.write_text(cls.BOX)
        environment = mock.patch.dict(os.environ, {
            "HEADROOM_NVML": str(FAKE_NVML), "HEADROOM_FAKE_NVML": str(box),
            "HEADROOM_LEASE_DIR": folder.name, "HEADROOM_STATE_DIR": folder.name})
        environment.start()
        cls.addClassCleanup(environment.stop)

    def room(self, card, **known):
        stats = dict.fromkeys((field.name for field in dataclasses.fields(memory.GpuMemoryStats)), 0)
        stats = memory.GpuMemoryStats(**{**stats, **known})
        uuid = types.SimpleNamespace(uuid=f"5a6e1c5e-0000-4000-8000-00000000000{card}")
        with mock.patch.object(memory, "get_gpu_memory_stats", lambda device: stats), \
                mock.patch("torch.cuda.get_device_properties", lambda device: uuid):
            return room.room_of("cuda:0", [])

    def largest(self, where):
        training = subjects.Training(Net(), subjects.default_loss, torch.optim.AdamW, None)
        return estimates._searched(training, rows, where, 1, 10**6, 0.1, 2)

    def test_a_card_of_the_catalogue_keeps_its_chip(self):
        """Only the size went into the dry run: without context, without cuBLAS's workspaces."""
        alone = headroom.find_max_batch_size(Net(), rows, gpu="RTX 4090", max_batch=10**6)
        free = headroom.find_max_batch_size(Net(), rows, gpu="23GiB", max_batch=10**6)
        before = self.room(1, free=None)  # this process has no context there yet
        self.assertEqual(before.card, "NVIDIA GeForce RTX 4090")
        self.assertEqual(before.free, headroom.gpus("all")[1].free)
        with_context = self.room(1, free=20 * GIB, reserved=3 * GIB, allocated=GIB)
        self.assertEqual(with_context.free, 22 * GIB)
        room_before = (24564 - 357 - 1024 - 426) << 20  # the last is the context
        for where, at_most in ((before, room_before), (with_context, 22 * GIB)):
            found = self.largest(where)
            self.assertEqual(found.probes[0], alone.probes[0])
            self.assertNotEqual(found.probes[0], free.probes[0])
            peak = max(one["peak_reserved_bytes"] for one in found.probes if one["fits"])
            self.assertLess(peak, at_most)
            self.assertGreater(peak, 0.98 * at_most)

    def test_an_unknown_card_has_its_size(self):
        found = self.room(2, free=None)
        self.assertIn(f'"total_bytes": {10 * GIB}', found.card)
        self.assertGreater(self.largest(found), 0)


PROGRAM = """
    import os, sys, torch, headroom
    def wait(model, batch):
        print(os.getpid(), flush=True)
        import time
        time.sleep(600)
    box = headroom.simulate("24GiB")
    headroom.estimate(torch.nn.Linear(8, 8), torch.ones(2, 8), loss=wait)
"""


BESIDE_A_GPU = """
    import torch, headroom
    from unittest import mock
    def estimated():
        return int(headroom.estimate(lambda: torch.nn.Linear(512, 512), torch.ones(8, 512)).peak.allocated)
    def accelerator():
        return torch._C._get_privateuse1_backend_name()
    gpu = mock.patch("torch.cuda.is_available", return_value=True)
    with gpu:
        first = estimated(), accelerator()
        torch.nn.Linear(2, 2)(torch.ones(2)).sum().backward()
        model = torch.nn.Linear(512, 512)
        after = int(headroom.estimate(model, torch.ones(8, 512)).peak.allocated), accelerator()
    print(first, after, estimated(), accelerator())
"""


class BesideAGpu(unittest.TestCase):
    def test_the_process_can_train_on_it_afterwards(self):
        # torch takes `sim` for the accelerator of a process that knows it, and CUDA's backward passes end there.
        said = subprocess.run([sys.executable, "-c", textwrap.dedent(BESIDE_A_GPU)], text=True,
                              stdout=subprocess.PIPE, check=True).stdout
        peak = int(said.split()[-2])
        self.assertEqual(said, f"({peak}, 'privateuseone') ({peak}, 'privateuseone') {peak} sim\n")

    def test_what_is_raised_there_arrives(self):
        def broken():
            raise OwnError("made there")
        with mock.patch("torch.cuda.is_available", return_value=True), \
                mock.patch("headroom._backend.is_registered", return_value=False):
            with self.assertRaisesRegex(OwnError, "made there"):
                headroom.estimate(broken, torch.ones(1))


def ends(pid, seconds=60):
    """Whether the process is gone by then. A parent that was interrupted before it could end its child
    leaves that to the kernel, which does it when the parent is gone."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":  # it has ended; its exit status was not read yet
            return True
        time.sleep(0.01)
    return False


class Ends(unittest.TestCase):
    def test_ctrl_c_ends_the_child_too(self):
        with subprocess.Popen([sys.executable, "-c", textwrap.dedent(PROGRAM)], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as parent:
            there = int(parent.stdout.readline())
            parent.send_signal(signal.SIGINT)
            said = parent.communicate()[1]
        self.assertIn("KeyboardInterrupt", said)
        self.assertTrue(ends(there))

    def test_a_fork_estimates_too(self):
        first = headroom.estimate(Net(), rows(8)).peak.allocated
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.write(writing, str(int(headroom.estimate(Net(), rows(8)).peak.allocated)).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as answer:
            self.assertEqual(answer.read(), str(int(first)))
        os.waitpid(pid, 0)


if __name__ == "__main__":
    unittest.main()

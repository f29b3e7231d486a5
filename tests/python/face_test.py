"""The package as a notebook uses it, name by name."""
import copy
import dataclasses
import json
import os
import pickle
import subprocess
import sys
import tempfile
import unittest
import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import headroom

GIB = 2**30


class Net(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.first = nn.Linear(width, 4 * width)
        self.last = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


def in_fresh_python(code, **environment):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                          env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class Core(unittest.TestCase):
    def test_it_needs_no_torch(self):
        code = ("import sys, headroom; headroom.gpus('sim:2x24GiB'); headroom.is_oom(MemoryError());"
                "headroom.select_gpus('1GiB', gpus='sim:1x24GiB'); print('torch' in sys.modules)")
        self.assertEqual(in_fresh_python(code), "False")

    def test_gpus(self):
        cards = headroom.gpus("RTX 4090,H100")
        self.assertEqual([card.index for card in cards], [0, 1])
        self.assertIn("4090", cards[0].name)
        self.assertTrue(cards[0].simulated)
        self.assertGreater(cards[1].total, cards[0].total)
        self.assertEqual(cards[0].processes, [])

    def test_sizes(self):
        self.assertEqual(headroom.Bytes("10GiB"), 10 * GIB)
        self.assertEqual(f"{headroom.Bytes(6871947674)}", "6.40 GiB")
        self.assertEqual(f"{headroom.Bytes(5):>4d}", "   5")
        self.assertEqual(headroom.Bytes(GIB).gib, 1.0)
        with self.assertRaises(headroom.UsageError):
            headroom.Bytes("10 apples")

    def test_errors_are_what_python_expects(self):
        with self.assertRaises(ValueError):
            headroom.gpus("sim:nonsense")
        with self.assertRaises(TimeoutError):
            raise headroom.BusyError("taken")

    def test_select(self):
        picked = headroom.select_gpus("10GiB", count=2, gpus="sim:4x24GiB")
        self.assertEqual(len(picked), 2)
        self.assertGreaterEqual(picked[0].usable, 10 * GIB)
        with self.assertRaisesRegex(headroom.UnavailableError, "40.00 GiB"):
            headroom.select_gpus("40GiB", gpus="sim:1x24GiB")

    def test_an_unknown_name_is_an_attribute_error(self):
        with self.assertRaises(AttributeError):
            headroom.no_such_name
        self.assertIn("estimate", dir(headroom))

    def test_all_that_is_promised_is_there(self):
        for name in headroom.__all__:
            self.assertIsNotNone(getattr(headroom, name), name)


class Failures(unittest.TestCase):
    def test_by_type_text_and_cause(self):
        self.assertTrue(headroom.is_oom(torch.OutOfMemoryError("CUDA out of memory.")))
        self.assertTrue(headroom.is_oom(MemoryError()))
        self.assertTrue(headroom.is_oom(RuntimeError(
            "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")))
        self.assertTrue(headroom.is_oom(RuntimeError("Unable to find a valid cuDNN algorithm to run convolution")))
        self.assertFalse(headroom.is_oom(ValueError("out of memory bank")))
        try:
            try:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            except RuntimeError as error:
                raise ValueError("the step failed") from error
        except ValueError as error:
            self.assertTrue(headroom.is_oom(error))
            self.assertEqual(headroom.classify_exception(error).asked, 2 * GIB)

    def test_other_failures(self):
        for error in (ValueError("batch"), KeyError("oom"), AttributeError(
                "module 'torch.cuda' has no attribute 'OutOfMemoryError'"), IndexError("out of range")):
            self.assertFalse(headroom.is_oom(error), repr(error))

    def test_a_suppressed_context_does_not_count(self):
        try:
            try:
                raise MemoryError
            except MemoryError:
                raise ValueError("bad") from None
        except ValueError as error:
            self.assertFalse(headroom.is_oom(error))

    def test_a_group(self):
        if sys.version_info >= (3, 11):
            group = ExceptionGroup("workers", [ValueError("a"), MemoryError()])  # noqa: F821
            self.assertTrue(headroom.is_oom(group))


class Simulated(unittest.TestCase):
    def setUp(self):
        self.box = headroom.simulate("2xRTX 4090")
        self.addCleanup(self.box.end)

    def test_devices(self):
        self.assertEqual(torch.accelerator.current_accelerator().type, "sim")
        self.assertEqual((torch.sim.device_count(), torch.accelerator.device_count()), (2, 2))
        self.assertEqual(torch.ones(3, device="sim").device, torch.device("sim:0"))
        with torch.device("sim:1"):
            self.assertEqual(torch.zeros(2).device.index, 1)
        with torch.sim.device(1):
            self.assertEqual(torch.empty(1, device="sim").device.index, 1)
        self.assertEqual(torch.sim.current_device(), 0)
        self.assertEqual(Net().to("sim:1").first.weight.device.index, 1)
        self.assertEqual(Net().sim(1).first.weight.device.index, 1)
        self.assertTrue(torch.ones(2).sim().is_sim)
        self.assertIn("4090", torch.sim.get_device_name(0))
        self.assertIn("4090", torch.sim.get_device_properties(0).name)

    def test_memory(self):
        before = torch.sim.memory_allocated(0)
        x = torch.empty(1 << 20, device="sim:0")
        self.assertEqual(torch.sim.memory_allocated(0) - before, 4 << 20)
        free, total = torch.sim.mem_get_info(0)
        self.assertLess(free, total)
        del x
        self.assertEqual(torch.sim.memory_allocated(0), before)
        self.assertGreaterEqual(torch.sim.max_memory_allocated(0), before + (4 << 20))
        torch.sim.empty_cache()
        torch.sim.reset_peak_memory_stats(0)
        self.assertEqual(torch.sim.max_memory_allocated(0), before)
        self.assertIn("allocated", torch.sim.memory_summary(0))
        self.assertEqual(torch.accelerator.memory_stats(0)["allocated_bytes.all.current"], before)

    def test_backward_after_one_of_the_cpu(self):
        # Python's engine has counted the devices by then, and knew none of these.
        torch.ones(3, requires_grad=True).sum().backward()
        net = Net().to("sim:1")
        net(torch.ones(4, 256, device="sim:1")).sum().backward()
        self.assertEqual(net.first.weight.grad.device.index, 1)

    def test_a_module_moves_as_it_does_to_cuda(self):
        net = nn.Sequential(nn.Embedding(100, 8), nn.Linear(8, 100, bias=False))
        net[1].weight = net[0].weight
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        weight = net[0].weight
        before = torch.sim.memory_allocated(0)
        net.to("sim")
        self.assertIs(net[1].weight, weight)
        self.assertIs(optimizer.param_groups[0]["params"][0], weight)
        self.assertEqual(weight.device.type, "sim")
        self.assertLess(torch.sim.max_memory_allocated(0) - before, 2 * 100 * 8 * 4)
        net(torch.zeros(3, dtype=torch.long, device="sim")).sum().backward()
        optimizer.step()
        self.assertEqual(net.half()[0].weight.dtype, torch.float16)

    def test_mixed_precision(self):
        net, optimizer = Net().to("sim"), None
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("sim")
        for dtype in (torch.float16, torch.bfloat16):
            with torch.autocast("sim", dtype):
                out = net(torch.ones(4, 256, device="sim"))
            self.assertEqual(out.dtype, dtype)
            scaler.scale(out.float().mean()).backward()
            scaler.step(optimizer)
            scaler.update()

    def test_checkpointing(self):
        net = Net().to("sim")
        for reentrant in (True, False):
            x = torch.ones(4, 256, device="sim", requires_grad=True)
            checkpoint(net, x, use_reentrant=reentrant).sum().backward()
            self.assertEqual(x.grad.shape, x.shape)

    def test_saved_tensor_hooks_are_pythons_own(self):
        kept = []
        pack = lambda tensor: kept.append(tensor.shape) or tensor  # noqa: E731
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = Net().to("sim")(torch.ones(4, 256, device="sim")).sum()
        self.assertIn(torch.Size([4, 256]), kept)
        with torch.autograd.graph.save_on_cpu():
            Net().to("sim")(torch.ones(4, 256, device="sim")).sum().backward()
        loss.backward()

    def test_random_state(self):
        torch.manual_seed(5)
        self.assertEqual(torch.sim.initial_seed(), 5)
        state = torch.sim.get_rng_state("sim:1")
        torch.sim.manual_seed_all(7)
        torch.sim.set_rng_state(state, "sim:1")
        self.assertTrue(torch.equal(torch.sim.get_rng_state("sim:1"), state))
        generator = torch.Generator(device="sim").manual_seed(3)
        torch.randn(4, device="sim", generator=generator)
        with torch.random.fork_rng(devices=[0, 1], device_type="sim"):
            torch.manual_seed(1)

    def test_streams_and_events(self):
        stream = torch.sim.Stream()
        with torch.sim.stream(stream):
            self.assertEqual(torch.sim.current_stream(), stream)
        event = torch.sim.Event()
        event.record()
        self.assertTrue(event.query())
        torch.sim.current_stream().wait_stream(stream)
        torch.sim.synchronize()

    def test_all_optimizers(self):
        for name in sorted(set(torch.optim.__all__) - {"Optimizer", "lr_scheduler", "swa_utils"}):
            kind = getattr(torch.optim, name)
            if not isinstance(kind, type):
                continue
            net = nn.Linear(16, 16).to("sim") if name != "SparseAdam" else \
                nn.Embedding(16, 16, sparse=True).to("sim")
            parameters = [net.weight] if name == "Muon" else list(net.parameters())
            optimizer = kind(parameters, lr=0.1)
            x = torch.zeros(4, dtype=torch.long, device="sim") if name == "SparseAdam" else \
                torch.ones(4, 16, device="sim")

            def loss(net=net, x=x, optimizer=optimizer):
                optimizer.zero_grad()
                value = net(x).sum()
                value.backward()
                return value
            with self.subTest(name):
                for _ in range(2):
                    optimizer.step(loss)

    def test_a_mask_of_ones_is_known(self):
        self.assertTrue(torch.ones(4, 16, dtype=torch.long, device="sim").all())
        self.assertEqual(torch.tensor([3, 4]).to("sim").tolist(), [3, 4])
        self.assertEqual(self.box[0].values_read_as_zero, 0)
        self.assertEqual([f"{x.item():.1f}" for x in torch.linspace(0, 0.3, 4, device="sim")],
                         ["0.0", "0.1", "0.2", "0.3"])
        self.assertEqual(self.box[0].values_read_as_zero, 0)
        self.assertEqual(torch.randn(2, device="sim").sum().item(), 0)
        self.assertEqual(self.box[0].values_read_as_zero, 1)

    def test_scopes_and_statistics(self):
        with headroom.GpuMemoryScope("block", "sim:0") as scope:
            x = torch.empty(1 << 20, device="sim:0")
        self.assertEqual(scope.use.kept, 4 << 20)
        self.assertIn("block: sim:0", str(scope))
        said = []
        with headroom.GPUMemoryContext("again", "sim:0", sink=said.append):
            del x
        self.assertEqual(len(said), 1)
        self.assertEqual(headroom.get_gpu_memory_stats("sim:0").total, self.box[0].capacity)
        self.assertIn("after", headroom.log_gpu_memory_stats("after", "sim:0", sink=None))
        self.assertEqual(headroom.get_memory_snapshot("sim:0")["device"], "sim:0")
        headroom.reset_peak_memory_stats("sim:0")

    def test_clear(self):
        x = torch.empty(64 << 20, dtype=torch.uint8, device="sim:0")
        del x
        self.assertGreaterEqual(headroom.clear_gpu_memory().given_back, 64 << 20)
        kept = torch.empty(64 << 20, dtype=torch.uint8, device="sim:0")
        self.assertTrue(headroom.clear_gpu_memory(force=True).lingering)
        del kept
        headroom.clear_gpu_cache()

    def test_the_best_device_is_a_simulated_one(self):
        taken = torch.empty(4 * GIB, dtype=torch.uint8, device="sim:0")
        self.assertEqual(headroom.find_best_device("10GiB"), torch.device("sim:1"))
        self.assertEqual(headroom.wait_for_gpu(min_gpu_memory_mb=1000), torch.device("sim:1"))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            self.assertEqual(headroom.find_best_device(min_memory_mb=10**6).type, "cpu")
        self.assertIn("taking the CPU", str(said[0].message))
        with self.assertRaises(headroom.BusyError):
            headroom.find_best_device("900GiB", allow_cpu=False)
        del taken

    def test_history(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("memory.pickle", "memory.json"):
                path = os.path.join(folder, name)
                with headroom.record_history(path, "sim:0"):
                    Net().to("sim:0")(torch.ones(4, 256, device="sim:0")).sum().backward()
                self.assertGreater(os.path.getsize(path), 1000)
            with open(os.path.join(folder, "memory.pickle"), "rb") as file:
                snapshot = pickle.load(file)
            self.assertTrue(snapshot["device_traces"][0])
            with open(path, encoding="utf-8") as file:
                self.assertTrue(json.load(file)["traceEvents"])

    def test_the_next_box_ends_this_one(self):
        x = torch.ones(3, device="sim")
        other = headroom.simulate("24GiB")
        self.assertFalse(self.box.lives)
        with self.assertRaisesRegex(RuntimeError, "simulation has ended"):
            x + 1
        other.end()
        self.assertEqual(torch.sim.device_count(), 0)
        self.assertFalse(torch.sim.is_available())

    def test_dry_run(self):
        net = Net().to("sim:0")
        optimizer = torch.optim.AdamW(net.parameters())
        x = torch.ones(64, 256, device="sim:0")

        def step():
            optimizer.zero_grad()
            net(x).mean().backward()
            optimizer.step()

        report = headroom.dry_run(step, model=net, inputs=x)
        self.assertTrue(report.fits)
        weights = sum(p.numel() * 4 for p in net.parameters())
        self.assertEqual(report.at_peak.parameters, weights)
        self.assertEqual(report.at_peak.gradients, weights)
        self.assertEqual(sum(dataclasses.astuple(report.at_peak)), report.peak.allocated)
        self.assertIn("first", [one.name for one in report.by_module])
        self.assertEqual([one.step for one in report.per_step], [1, 2])
        self.assertEqual(report.biggest[0].category, "workspace")

    def test_torch_compile_is_refused_in_words(self):
        net = torch.compile(Net().to("sim"))
        with self.assertRaisesRegex(Exception, "received some of a simulated one.*without torch.compile"):
            net(torch.ones(4, 256, device="sim"))
        net = torch.compile(Net().to("sim"), backend="aot_eager")
        net(torch.ones(4, 256, device="sim")).sum().backward()
        on_the_cpu = torch.compile(Net(), backend="eager")
        self.assertEqual(on_the_cpu(torch.ones(4, 256)).shape, (4, 256))


class Copies(unittest.TestCase):
    """deepcopy of a buffer failed without data: torch copies its storage byte by byte."""

    def test_of_a_buffer_takes_memory_and_keeps_whole_numbers(self):
        with headroom.simulate("1GiB"):
            net = nn.BatchNorm1d(1024, device="sim")
            before = torch.sim.memory_allocated()
            copied = copy.deepcopy(net)
            self.assertEqual(torch.sim.memory_allocated() - before, 4 * 4096 + 512)
            self.assertEqual(copied.num_batches_tracked.item(), 0)
            self.assertEqual(copy.deepcopy(torch.arange(3, device="sim")).tolist(), [0, 1, 2])


class Checkpoints(unittest.TestCase):
    """torch.utils.checkpoint did not put the card's random numbers back."""

    def test_draw_the_same_dropout_again(self):
        with headroom.simulate("1GiB", mode="compute"):
            for reentrant in (True, False):
                x = torch.ones(1000, device="sim", requires_grad=True)
                y = checkpoint(lambda x: nn.functional.dropout(x, 0.5), x, use_reentrant=reentrant)
                y.sum().backward()
                self.assertTrue(torch.equal(x.grad, y.detach()))


class Recipes(unittest.TestCase):
    def test_pythons_engine_is_back_after_a_step(self):
        """A step in C++ runs on Headroom's engine, which knows no hooks of Python's."""
        recipe = headroom.recipe(model="gpt-tiny", dataset="synthetic", gradient_checkpointing=True, batch_size=2)
        recipe.step()
        x, packed = torch.ones(3, requires_grad=True), []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
            (x * x).sum().backward()
        self.assertEqual(len(packed), 2)
        self.assertTrue(torch.equal(x.grad, 2 * torch.ones(3)))
        self.assertEqual((recipe.steps_done, recipe.step() > 0, recipe.steps_done), (1, True, 2))

    def test_is_refused_as_by_the_command(self):
        with self.assertRaisesRegex(headroom.UsageError, "try lora"):
            headroom.recipe(model="lorra")


if __name__ == "__main__":
    unittest.main()

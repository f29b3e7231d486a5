"""What a program does to its card while an estimate runs there: random state, memory figures, and the
largest user of both, activation checkpointing."""
import unittest

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import headroom

GIB = 2**30


class Layers(nn.Module):
    """`kind`: None, or how each layer is run again in backward."""

    def __init__(self, kind=None, width=256):
        super().__init__()
        self.kind = kind
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1),
                          nn.Linear(4 * width, width)) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x) if self.kind is None else \
                checkpoint(layer, x, use_reentrant=self.kind == "reentrant")
        return x


def rows(count):
    return torch.ones(count, 256, requires_grad=True)


def on_a_box(model, **more):
    """Peak of the same two steps on a card of this process."""
    with headroom.simulate("unlimited"):
        net, x = model().to("sim"), rows(4096).detach().to("sim").requires_grad_()
        optimizer = torch.optim.AdamW(net.parameters())
        torch.sim.reset_peak_memory_stats()
        for _ in range(2):
            optimizer.zero_grad()
            net(x).mean().backward()
            optimizer.step()
        return torch.sim.max_memory_allocated()


class Checkpointing(unittest.TestCase):
    """Every estimate of a model with activation checkpointing failed: torch.sim asked for a box of Python's,
    which an estimate has not, when it was asked for the card's random state."""

    def test_is_estimated_as_a_box_runs_it(self):
        peak = {kind: headroom.estimate(lambda kind=kind: Layers(kind), lambda: rows(4096)).peak.allocated
                for kind in (None, "reentrant", "nonreentrant")}
        for kind in ("reentrant", "nonreentrant"):
            self.assertLess(peak[kind], 0.7 * peak[None])
            self.assertEqual(peak[kind], on_a_box(lambda kind=kind: Layers(kind)), kind)

    def test_allows_a_larger_batch(self):
        plain, again = (headroom.find_max_batch_size(Layers(kind), rows, gpu="1GiB", max_batch=10**6)
                        for kind in (None, "nonreentrant"))
        self.assertTrue(again.proven)
        self.assertGreater(again, 1.5 * plain)


class TorchSim(unittest.TestCase):
    def estimated(self, loss):
        return headroom.estimate(nn.Linear(256, 256), torch.ones(8, 256), gpu="2GiB", loss=loss)

    def test_knows_the_card(self):
        seen = {}

        def loss(model, batch):
            seen.update(count=torch.sim.device_count(), there=torch.sim.is_available(),
                        capacity=torch.sim.get_device_properties().total_memory,
                        free=torch.sim.mem_get_info()[0], kind=torch.accelerator.current_accelerator().type,
                        best=headroom.find_best_device("1GiB"), card=headroom.card_of("sim:0").capacity,
                        seed=torch.sim.initial_seed(), fraction=torch.sim.get_per_process_memory_fraction())
            return model(batch).mean()
        self.assertTrue(self.estimated(loss).fits)
        self.assertEqual((seen["count"], seen["there"], seen["kind"]), (1, True, "sim"))
        self.assertEqual((seen["capacity"], seen["card"]), (2 * GIB, 2 * GIB))
        self.assertLess(seen["free"], 2 * GIB)
        self.assertEqual((seen["best"], seen["fraction"]), (torch.device("sim:0"), 1.0))
        self.assertEqual((torch.sim.device_count(), torch.sim.is_available()), (0, False))

    def test_forks_random_numbers(self):
        def loss(model, batch):
            with torch.random.fork_rng(device_type="sim"):
                torch.sim.manual_seed_all(3)
            torch.sim.set_rng_state(torch.sim.get_rng_state())
            return model(batch).mean()
        self.assertTrue(self.estimated(loss).fits)

    def test_scopes_count(self):
        """They said that the card was not counted."""
        scopes = []

        def loss(model, batch):
            for device in (None, "sim", "sim:0"):
                with headroom.GpuMemoryScope("forward", device) as scope:
                    kept = model(batch)
                scopes.append(scope.use.kept)
                del kept
            return model(batch).mean()
        self.estimated(loss)
        self.assertEqual(scopes[-3:], [8 * 256 * 4] * 3)

    def test_memory_fractions_are_the_cards_own(self):
        def loss(model, batch):
            torch.sim.set_per_process_memory_fraction(0.5)
            self.assertEqual(torch.sim.get_per_process_memory_fraction(), 0.5)
            return model(batch).mean()
        self.estimated(loss)
        with headroom.simulate("1GiB"):
            self.assertEqual(torch.sim.get_per_process_memory_fraction(), 1.0)

    def test_an_estimate_inside_of_an_estimate_runs_in_a_child(self):
        inner = []

        def loss(model, batch):
            inner.append(headroom.estimate(nn.Linear(64, 64), torch.ones(2, 64)).peak)
            return model(batch).mean()
        self.estimated(loss)
        self.assertEqual(inner[0], headroom.estimate(nn.Linear(64, 64), torch.ones(2, 64)).peak)

    def test_has_what_torch_cuda_has_or_says_why_not(self):
        """`torch.sim.memory` and others were not there, and the error named a file of Headroom's."""
        with headroom.simulate("1GiB"):
            x = torch.empty(1024, device="sim")
            self.assertEqual(torch.sim.memory.memory_allocated(), 4 * x.numel())
            self.assertEqual(torch.sim.random.initial_seed(), torch.sim.initial_seed())
            self.assertEqual(torch.sim.utilization(), 0)
            with torch.sim.nvtx.range("step"), torch.sim.amp.autocast(dtype=torch.bfloat16):
                self.assertEqual(torch.mm(torch.ones(2, 2, device="sim"),
                                          torch.ones(2, 2, device="sim")).dtype, torch.bfloat16)
            self.assertTrue(torch.sim.amp.GradScaler().is_enabled())
            for name, words in (("CUDAGraph", "captures no graphs"), ("MemPool", "one pool"),
                                ("FloatTensor", "device=\"sim\""), ("nccl", "torch.distributed"),
                                ("_record_memory_history", "record_history"), ("cudart", "not simulated"),
                                ("no_such_name", "'torch.sim' has no attribute 'no_such_name'")):
                with self.assertRaisesRegex(AttributeError, words):
                    getattr(torch.sim, name)


if __name__ == "__main__":
    unittest.main()

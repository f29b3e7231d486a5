"""headroom.spill(): what a card has no room for waits on the host, and the results stay the same to the bit."""
import copy
import gc
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import headroom

BUILD = pathlib.Path(os.environ.get("HEADROOM_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build")).resolve()


class Block(nn.Module):
    def __init__(self, width, recompute=None):
        super().__init__()
        self.norm, self.recompute = nn.LayerNorm(width), recompute
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True, dropout=0.1)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1),
                                 nn.Linear(4 * width, width))

    def plain(self, x):
        h = self.norm(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(x)

    def forward(self, x):
        if self.recompute is None:
            return self.plain(x)
        return checkpoint(self.plain, x, use_reentrant=self.recompute)


def net_of(recompute=None, depth=4):
    return nn.Sequential(nn.Embedding(64, 128), *[Block(128, recompute) for _ in range(depth)], nn.Linear(128, 64))


def train(net, optimizer, steps=4, accumulate=1):
    data = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(steps):
        for _ in range(accumulate):
            ids = torch.randint(0, 64, (16, 65), generator=data)
            out = net(ids[:, :-1].to("sim:0"))
            loss = nn.functional.cross_entropy(out.flatten(0, 1), ids[:, 1:].flatten().to("sim:0"))
            loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


class Result:
    def __init__(self, card, spills=False, **how):
        accumulate = how.pop("accumulate", 1)
        with headroom.simulate(card, mode="compute", check_streams=True) as box:
            torch.manual_seed(0)
            spill = headroom.spill() if spills else None
            try:
                net = net_of(**how).to("sim:0")
                optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
                self.losses = train(net, optimizer, accumulate=accumulate)
                self.weights = [one.cpu().clone() for one in net.state_dict().values()]
                self.states = copy.deepcopy(optimizer.state_dict())["state"]
                self.states = [one.cpu() for state in self.states.values() for one in state.values()]
            finally:
                if spill is not None:
                    spill.end()
            self.spill = spill
            self.peak = torch.sim.max_memory_reserved("sim:0")
            del box
        gc.collect()


class Spill(unittest.TestCase):
    def assert_same(self, one, other):
        self.assertEqual(one.losses, other.losses)
        for name in ("weights", "states"):
            for a, b in zip(getattr(one, name), getattr(other, name), strict=True):
                self.assertTrue(torch.equal(a, b), name)

    def check(self, percents, **how):
        whole = Result("1x8GiB", **how)
        same = Result(f"1x{whole.peak >> 10}KiB", spills=True, **how)
        self.assert_same(same, whole)
        self.assertEqual((same.spill.refused, same.spill.moved_bytes), (0, 0))
        for percent in percents:
            with self.subTest(percent=percent, **how):
                card = f"1x{whole.peak * percent // 100 >> 10}KiB"
                with self.assertRaises(torch.OutOfMemoryError):
                    Result(card, **how)
                part = Result(card, spills=True, **how)
                self.assert_same(part, whole)
                self.assertGreater(part.spill.moved_bytes, 0)

    def test_a_part_of_the_memory_gives_the_same_to_the_bit(self):
        self.check((90, 70, 50))

    def test_accumulated_gradients(self):
        self.check((70,), accumulate=3)

    def test_checkpointing_of_both_kinds(self):
        for reentrant in (True, False):
            self.check((85,), recompute=reentrant, depth=8)


class Beside(unittest.TestCase):
    """Other features of PyTorch, each beside a spill that moves all that it may."""

    def setUp(self):
        self.box = headroom.simulate("1x64MiB", mode="compute", check_streams=True)
        self.addCleanup(self.box.end)
        self.spill = headroom.spill()
        self.addCleanup(self.spill.end)

    def squeeze(self):
        """Everything that may leave does."""
        held = []
        try:
            while True:
                held.append(torch.empty(1 << 18, device="sim:0"))
        except torch.OutOfMemoryError as error:
            self.error = str(error)
        self.assertGreater(self.spill.waiting_bytes, 0)

    def test_graphs_that_are_used_twice(self):
        x = torch.rand(1 << 16, device="sim:0", requires_grad=True)
        y = (x.sin() * x.cos()).exp().sum()
        self.squeeze()
        first, = torch.autograd.grad(y, x, retain_graph=True)
        self.squeeze()
        second, = torch.autograd.grad(y, x)
        self.assertTrue(torch.equal(first, second))

    def test_derivatives_of_derivatives(self):
        def second(squeezes):
            x = torch.linspace(0, 1, 1 << 16, device="sim:0", requires_grad=True)
            first, = torch.autograd.grad((x.sin() ** 3).sum(), x, create_graph=True)
            if squeezes:
                self.squeeze()
            return torch.autograd.grad(first.sum(), x)[0].cpu()
        self.assertTrue(torch.equal(second(True), second(False)))

    def test_what_was_changed_in_place_gives_torchs_error(self):
        def error():
            x = torch.rand(1 << 12, device="sim:0", requires_grad=True)
            y = x.exp()
            z = y.sum()
            y.add_(1)
            with self.assertRaises(RuntimeError) as caught:
                z.backward()
                y.sum().backward()
            return str(caught.exception)
        with_hooks = error()
        self.spill.end()
        self.assertEqual(with_hooks, error())
        self.assertIn("output 0 of", with_hooks)

    def test_transforms_step_aside(self):
        from torch.func import grad, vmap
        x = torch.rand(8, 4, device="sim:0")
        found = vmap(grad(lambda row: (row ** 3).sum()))(x)
        torch.testing.assert_close(found, 3 * x ** 2)
        self.assertIsNotNone(torch._C._autograd._top_saved_tensors_default_hooks(True))

    def test_other_hooks_hold_inside(self):
        x = torch.rand(1 << 14, device="sim:0", requires_grad=True)
        with torch.autograd.graph.save_on_cpu():
            y = (x ** 2).sum()
        y.backward()
        self.assertTrue(torch.equal(x.grad, 2 * x))

    def test_states_are_there_for_whoever_asks(self):
        net = nn.Linear(256, 256).to("sim:0")
        optimizer = torch.optim.AdamW(net.parameters())
        net(torch.rand(4, 256, device="sim:0")).sum().backward()
        optimizer.step()
        wanted = [one.clone() for state in optimizer.state.values() for one in state.values()]
        for ask in (lambda: optimizer.state_dict()["state"], lambda: optimizer.state,
                    lambda: torch.load(self.saved(optimizer.state_dict()))["state"],
                    lambda: copy.deepcopy(optimizer).state):
            net(torch.rand(4, 256, device="sim:0")).sum().mul(0).backward()
            self.spill._after_step(optimizer)
            self.squeeze()
            found = [one for state in ask().values() for one in state.values()]
            for one, other in zip(found, wanted, strict=True):
                self.assertTrue(torch.equal(one.cpu(), other.cpu()))

    @staticmethod
    def saved(content):
        file = io.BytesIO()
        torch.save(content, file)
        file.seek(0)
        return file

    def test_one_net_waits_while_another_works(self):
        teacher = nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 512)).to("sim:0").requires_grad_(False)
        student = nn.Linear(512, 512).to("sim:0")
        optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
        x = torch.rand(4, 512, device="sim:0")
        before = [one.cpu() for one in teacher.parameters()]
        target = teacher(x).cpu()
        (student(x) - teacher(x)).pow(2).sum().backward()
        optimizer.step()
        self.squeeze()
        self.assertGreaterEqual(self.spill.waiting_bytes, 2 * 512 * 512 * 4)
        file = self.saved(teacher.state_dict())
        for one, other, read in zip(teacher.parameters(), before, torch.load(file).values(), strict=True):
            self.assertTrue(torch.equal(one.cpu(), other))
            self.assertTrue(torch.equal(read.cpu(), other))
        self.spill._after_step(optimizer)
        self.squeeze()
        self.assertTrue(torch.equal(teacher(x).cpu(), target))

    def test_a_captured_graph_keeps_its_addresses(self):
        net = nn.Linear(256, 256).to("sim:0")
        optimizer = torch.optim.AdamW(net.parameters())

        def step():
            net(torch.rand(4, 256, device="sim:0")).exp().sum().backward()
            optimizer.step()
        step()
        self.squeeze()
        capture = self.spill._before_capture(lambda graph: graph)
        self.assertEqual(capture("graph"), "graph")
        self.assertEqual(self.spill.waiting_bytes, 0)
        saved = self.spill.figures()["saved"]
        step()
        self.assertEqual(self.spill.figures()["saved"], saved)
        self.spill._after_capture(lambda: None)()
        states = [one for state in optimizer.state.values() for one in state.values()]
        step()
        self.assertGreater(self.spill.figures()["saved"], saved)
        before = self.spill.moved_bytes
        with self.assertRaises(AssertionError):  # nothing waits
            self.squeeze()
        self.assertEqual(self.spill.moved_bytes, before)
        self.assertTrue(all(one.is_cpu or one.untyped_storage().nbytes() for one in states))

    def test_threads_have_the_hooks(self):
        saved = []

        def work():
            x = torch.rand(1 << 14, device="sim:0", requires_grad=True)
            y = x.exp().exp().sum()
            y.backward()
            saved.append(torch.equal(x.grad, x.exp().exp() * x.exp()))
        before = self.spill.figures()["saved"]
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        self.assertEqual(saved, [True])
        self.assertGreater(self.spill.figures()["saved"], before)

    def test_the_error_says_what_waits(self):
        x = torch.rand(1 << 20, device="sim:0", requires_grad=True)
        y = x.exp()
        z = y.exp()
        del y
        self.squeeze()
        self.assertIn("Tried to allocate 20.00 MiB", self.error.replace("2.00", "20.00"))
        self.assertIn("wait on the host, and nothing that is left on the card may leave now", self.error)
        z.sum().backward()

    def test_there_is_one_at_a_time(self):
        with self.assertRaisesRegex(headroom.UsageError, "one at a time"):
            headroom.spill()
        self.spill.end()
        with headroom.spill("1GiB") as other:
            self.assertEqual(str(other), "nothing was refused, nothing moved")
        self.assertEqual(other.refused, 0)

    def test_no_room_on_the_host_is_said(self):
        self.spill.end()
        with headroom.spill(1 << 20) as spill:
            y = torch.rand(1 << 20, device="sim:0", requires_grad=True).exp().exp()
            with self.assertRaisesRegex(torch.OutOfMemoryError, "which has no room for more \\(1.0 MiB are allowed"):
                held = []
                while True:
                    held.append(torch.empty(1 << 18, device="sim:0"))
            held.clear()
            self.assertEqual(spill.moved_bytes, 0)
            y.sum().backward()


SCRIPT = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(*[nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(6)]).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(4):
    loss = net(torch.rand(2048, 256).cuda()).pow(2).mean()
    loss.backward(); optimizer.step(); optimizer.zero_grad()
    print(step, loss.item())
"""


class Command(unittest.TestCase):
    def test_a_script_runs_unchanged(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "train.py").write_text(SCRIPT)

            def run(card, *options):
                done = subprocess.run(
                    [BUILD / "bin" / "headroom", "run", "--spill", "--json", *options, "--gpus", card, "--",
                     sys.executable, "train.py"], cwd=folder, capture_output=True, text=True, timeout=600, check=False,
                    env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": "",
                         "HEADROOM_STATE_DIR": folder, "HEADROOM_LEASE_DIR": folder})
                self.assertEqual(done.returncode, 0, done.stderr)
                printed = [line for line in done.stderr.splitlines() if line[:1].isdigit()]
                return printed, json.loads(done.stdout)["spill"][0], done.stderr
            whole, figures, _ = run("sim:1x8GiB")
            self.assertEqual(len(whole), 4)
            self.assertEqual((figures["refused"], figures["moved_bytes"]), (0, 0))
            part, moved, text = run(f"sim:1x{figures['peak_reserved_bytes'] * 7 // 10 >> 10}KiB", "--host-memory", "2GiB")
            self.assertEqual(part, whole)
            self.assertGreater(moved["moved_bytes"], 0)
            self.assertEqual(moved["refused"], moved["rescued"])
            self.assertIn("requests were refused", text)


if __name__ == "__main__":
    unittest.main()

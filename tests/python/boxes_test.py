"""Boxes of simulated cards: disturbances, their end, and programs that do not run in them."""
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
import types
import unittest
import warnings
from unittest import mock

import torch
from torch import nn

import headroom


def ooms(count):
    """How many of so many requests are refused."""
    refused = 0
    for _ in range(count):
        try:
            torch.empty(4, device="sim:0")
        except torch.OutOfMemoryError:
            refused += 1
    return refused


class Streams(unittest.TestCase):
    def test_a_missing_wait_is_found_if_the_box_checks_streams(self):
        with headroom.simulate("1GiB", check_streams=True):
            x = torch.ones(1024, device="sim:0")
            main, side = torch.accelerator.current_stream(), torch.Stream(device="sim:0")
            side.wait_stream(main)
            with side:
                x.fill_(2)
            with self.assertRaisesRegex(RuntimeError, "aten::mul.Tensor on the default stream of sim:0 to wait "
                                                      "for aten::fill_.Scalar on stream"):
                x * 2
            main.wait_stream(side)
            self.assertEqual((x * 2).shape, (1024,))


class Disturbed(unittest.TestCase):
    def setUp(self):
        self.box = headroom.simulate("2x24GiB")
        self.addCleanup(self.box.end)

    def test_an_injection_lasts_though_its_answer_is_dropped(self):
        """box.inject("oom@100") did nothing unless its answer was kept, which nothing said."""
        self.box.inject("oom@2")
        self.assertEqual(ooms(3), 1)

    def test_it_can_be_stopped(self):
        injection = self.box.inject("oom@1:every=1")
        self.assertEqual(ooms(3), 3)
        self.assertNotIn("stopped", repr(injection))
        injection.stop()
        injection.stop()
        self.assertEqual(ooms(3), 0)
        self.assertIn("stopped", repr(injection))

    def test_it_lasts_for_a_with(self):
        with self.box.inject("oom@1:every=2") as injection:
            self.assertEqual(injection.what, "oom@1:every=2")
            self.assertEqual(ooms(4), 2)
        self.assertEqual(ooms(4), 0)

    def test_several_act_together_and_go_on_counting(self):
        """A second one silenced the first, and the first one's end brought the second's to nothing."""
        first = self.box.inject("oom@4")
        self.assertEqual(ooms(2), 0)
        second = self.box.inject("oom@100")
        self.assertEqual(ooms(2), 1)  # the fourth in all
        first.stop()
        self.assertEqual(ooms(97), 0)
        self.assertEqual(ooms(1), 1)  # the second's hundredth
        second.stop()

    def test_it_ends_with_the_box(self):
        self.box.inject("oom@1:every=1")
        with headroom.simulate("1GiB"):
            self.assertEqual(ooms(2), 0)
        with self.assertRaisesRegex(headroom.UsageError, "a box that lives"):
            self.box.inject("oom@1")

    def test_steps_are_refused(self):
        """box.inject("oom@step=2") was taken, and never came: nothing in Python counts steps."""
        for what in ("oom@step=2", "oom@step=2:phase=backward", "neighbour@step=2:30%"):
            with self.assertRaisesRegex(headroom.UsageError, f"counts no steps, received '{what}'"):
                self.box.inject(what)

    def test_what_cannot_be_read_changes_nothing(self):
        self.box.inject("oom@1:every=1")
        with self.assertRaisesRegex(headroom.UsageError, "oom@100"):
            self.box.inject("oom")
        self.assertEqual(ooms(2), 2)

    def test_a_neighbour_holds_no_more_than_there_is(self):
        """hold("100GiB") of a card of 24 GiB was taken without a word."""
        with self.assertRaisesRegex(headroom.UsageError, "at most the 24.00 GiB"):
            self.box[0].hold("100GiB")
        self.box[0].hold("24GiB")
        self.assertEqual(ooms(1), 1)

    def test_a_history_that_cannot_be_written_is_told_before(self):
        """It was told at the end, when the history was lost."""
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(headroom.WriteError, "cannot write"):
                with headroom.record_history(os.path.join(folder, "no", "memory.pickle"), "sim:0"):
                    self.fail("it began")


class Ended(unittest.TestCase):
    def test_what_was_copied_stays_and_the_rest_says_so(self):
        """Without a box the text was of cards that do not exist, and `m.cpu()` failed by it."""
        with headroom.simulate("1GiB", mode="compute"):
            net = nn.Linear(2, 2).to("sim")
            kept = net(torch.ones(1, 2, device="sim")).detach().cpu()
        self.assertEqual(kept.shape, (1, 2))
        for use in (net.cpu, lambda: net.weight + 1, lambda: net.weight.tolist()):
            with self.assertRaisesRegex(RuntimeError, "simulation has ended.*cpu\\(\\) before"):
                use()

    def test_messages_name_nothing_of_cpp(self):
        with headroom.simulate("1GiB", assume=None):
            x = torch.randn(4, device="sim")
            for use in (lambda: x.nonzero(), lambda: nn.functional.one_hot(x.long()), x.unique):
                with self.assertRaisesRegex(NotImplementedError, "compute mode") as raised:
                    use()
                self.assertNotIn("::", str(raised.exception).replace("aten::", ""))
            with self.assertRaisesRegex(headroom.UsageError, "uses memory of sim:0") as raised:
                headroom.dry_run(lambda: torch.ones(3) + 1)
            self.assertNotIn("::", str(raised.exception))
        with headroom.simulate("1GiB", mode="compute"):
            with self.assertRaisesRegex(headroom.UsageError, "shape-only") as raised:
                headroom.dry_run(lambda: None)
            self.assertNotIn("::", str(raised.exception))
        with mock.patch("torch.cuda.is_initialized", return_value=True):
            with self.assertRaisesRegex(headroom.UnavailableError, "estimate\\(\\)") as raised:
                headroom.simulate("1GiB")
            self.assertNotIn("::", str(raised.exception))


class BackwardPasses(unittest.TestCase):
    """In autograd's own threads they kept Python objects of theirs for a moment after they had returned. A process
    that ended in it was aborted: "terminate called without an active exception"."""

    def step(self, device, threads):
        x = torch.ones(2, device=device, requires_grad=True)
        x.register_hook(lambda gradient: threads.append(threading.get_ident()))
        (x * 2).sum().backward()
        return x.grad

    def test_run_in_the_thread_that_asks(self):
        threads = []
        with headroom.simulate("1GiB") as box:
            self.step("sim", threads)
            with headroom.simulate("2GiB"):  # ends the first
                self.step("sim", threads)
            self.assertFalse(box.lives)
        self.assertEqual(threads, [threading.get_ident()] * 2)

    def test_run_as_before_once_the_box_has_ended(self):
        for _ in range(2):
            with headroom.simulate("1GiB"):
                self.assertFalse(torch._C._is_multithreading_enabled())
            self.assertTrue(torch._C._is_multithreading_enabled())
        headroom.estimate(nn.Linear(8, 8), torch.ones(2, 8))
        self.assertTrue(torch._C._is_multithreading_enabled())

    def test_of_an_estimate_too(self):
        threads = []
        def loss(model, x):
            y = model(x)
            y.register_hook(lambda gradient: threads.append(torch._C._is_multithreading_enabled()))
            return y.sum()
        headroom.estimate(nn.Linear(8, 8), torch.ones(2, 8), loss=loss)
        self.assertTrue(threads)
        self.assertFalse(any(threads))


def accelerate_on(kind):
    state = types.ModuleType("accelerate.state")
    state.PartialState = type("PartialState", (), {"_shared_state": {"device": torch.device(kind)}})
    return mock.patch.dict(sys.modules, {"accelerate.state": state})


class Elsewhere(unittest.TestCase):
    """transformers.Trainer, accelerate and Lightning trained on the CPU inside a box, and nothing said so."""

    def said(self, program):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            program()
        return [str(one.message) for one in said if "took the CPU" in str(one.message)]

    def test_who_took_the_cpu_in_a_box_is_named(self):
        def program():
            with headroom.simulate("1GiB"):
                torch.ones(3, device="sim")
                patch = accelerate_on("cpu")
                patch.start()
                self.addCleanup(patch.stop)
        self.assertRegex(self.said(program)[0], "accelerate.*ACCELERATE_TORCH_DEVICE=sim")

    def test_who_had_it_before_is_not_unless_the_cards_were_not_used(self):
        def program(use):
            with headroom.simulate("1GiB"):
                if use:
                    torch.ones(3, device="sim")
        with accelerate_on("cpu"):
            self.assertEqual(len(self.said(lambda: program(use=True))), 0)
            self.assertEqual(len(self.said(lambda: program(use=False))), 1)
        with accelerate_on("sim"):
            self.assertEqual(len(self.said(lambda: program(use=False))), 0)
        with mock.patch.dict(sys.modules, {"lightning.pytorch": types.ModuleType("lightning")}):
            self.assertIn("Lightning", self.said(lambda: program(use=False))[0])
            self.assertEqual(len(self.said(lambda: program(use=True))), 0)
        self.assertEqual(len(self.said(lambda: program(use=False))), 0)

    def test_it_is_said_when_the_program_ends(self):
        program = """
            import sys, types, torch, headroom
            box = headroom.simulate("1GiB")
            sys.modules["pytorch_lightning"] = types.ModuleType("pytorch_lightning")
        """
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Lightning took the CPU", done.stderr)


if __name__ == "__main__":
    unittest.main()

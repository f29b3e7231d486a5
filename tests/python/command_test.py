"""`headroom estimate train.py:make_step` and `headroom fit`: any function of a Python program."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest
from unittest import mock

BUILD = pathlib.Path(__file__).resolve().parents[2] / os.environ.get("HEADROOM_BUILD", "build")
HEADROOM = BUILD / "bin" / "headroom"

PROGRAM = """
    import sys
    import torch
    from torch import nn

    print("this goes to standard error")

    def net():
        return nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024))

    def make_step(batch=64):
        model = net()
        optimizer = torch.optim.AdamW(model.parameters())
        x = torch.randn(batch, 1024)
        def step():
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
        return model, step

    def module_and_inputs(batch=64):
        return net(), torch.randn(batch, 1024)

    def on_a_device(batch, device):
        assert torch.device(device).type == "sim"
        return net().to(device), torch.randn(batch, 1024, device=device)

    class Setup:
        @staticmethod
        def step():
            return make_step(8)

    def with_batch(batch):
        return make_step(batch)

    def two(batch, length):
        return make_step(batch)

    def after_others(device, length=8, *, batch_size=2):
        return with_device(device, length, batch_size)

    def with_device(device, length=8, batch_size=2):
        assert torch.device(device).type == "sim" and length == 8
        return make_step(batch_size)

    def frozen():
        return net().requires_grad_(False).eval(), torch.randn(64, 1024)

    def frozen_rows(batch):
        return frozen()[0], torch.randn(batch, 1024)

    def lazy():
        return nn.Sequential(nn.LazyLinear(4096), nn.ReLU(), nn.LazyLinear(1024)), torch.randn(64, 1024)

    def inverse():
        model, x = net(), torch.randn(64, 1024)
        return model, lambda: (1 / model(x).sum().item())

    def compiled():
        return torch.compile(net()), torch.randn(64, 1024)

    def on_cuda():
        return net().cuda(), torch.randn(64, 1024)

    def broken():
        raise KeyError("no data")

    def nothing():
        return 3

    def ends():
        raise SystemExit(7)
"""


class Command(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        (pathlib.Path(cls.folder.name) / "train.py").write_text(textwrap.dedent(PROGRAM))

    def run_headroom(self, *arguments):
        environment = {**os.environ, "HEADROOM_PYTHON": sys.executable}
        return subprocess.run([HEADROOM, *arguments], cwd=self.folder.name, env=environment,
                              capture_output=True, text=True, check=False)

    def document(self, *arguments):
        done = self.run_headroom(*arguments, "--json")
        self.assertIn(done.returncode, (0, 2), done.stderr)
        return json.loads(done.stdout)

    def test_a_step(self):
        document = self.document("estimate", "train.py:make_step", "--gpus", "RTX 4090")
        weights = 2 * 1024 * 4096 + 4096 + 1024
        self.assertEqual(document["model"], {"name": "train.py:make_step", "parameters": weights,
                                             "trainable_parameters": weights})
        self.assertTrue(document["fits"])
        self.assertEqual(document["at_peak"]["parameters_bytes"], 4 * weights)
        self.assertEqual(sum(document["at_peak"].values()), document["peak"]["allocated_bytes"])
        self.assertEqual(document["spare_bytes"], document["device"]["usable_bytes"] -
                         document["peak"]["process_bytes"])

    def test_the_keys_are_those_of_a_model_by_name(self):
        ours = self.document("estimate", "train.py:make_step", "--gpus", "RTX 4090")
        named = json.loads(self.run_headroom("estimate", "gpt2", "--gpus", "RTX 4090",
                                             "--json").stdout)
        self.assertEqual(set(ours), set(named))
        ours = self.document("fit", "train.py:make_step", "--gpus", "sim:1x2GiB")
        named = json.loads(self.run_headroom("fit", "gpt2", "--gpus", "RTX 4090", "--json").stdout)
        self.assertEqual(set(ours), set(named))

        ours = self.document("profile", "train.py:make_step", "--gpus", "RTX 4090")
        named = json.loads(self.run_headroom("profile", "gpt2", "--gpus", "RTX 4090", "--json").stdout)
        self.assertEqual(set(ours), set(named))

    def test_a_profile_of_one_step(self):
        document = self.document("profile", "train.py:make_step", "--gpus", "RTX 4090", "--steps", "1",
                                 "--group-by", "module", "--row-limit", "0")
        self.assertEqual((document["steps"], document["fits"], document["rates_of"]), (1, True, "RTX 4090"))
        self.assertGreater({row["name"]: row for row in document["rows"]}["0"]["self_bytes"], 0)
        self.assertEqual(self.run_headroom("profile", "train.py:make_step", "--seq", "4").returncode, 64)

    def test_a_module_with_inputs_and_one_inside_a_class(self):
        for function in ("module_and_inputs", "Setup.step"):
            document = self.document("estimate", f"train.py:{function}")
            self.assertIsNone(document["device"])
            self.assertIsNone(document["fits"])
            self.assertGreater(document["peak"]["allocated_bytes"], 4 * 8 * 2**20)

    def test_a_batch_is_given_to_the_function(self):
        """What `fit` wants, def make_step(batch), could not be estimated: there was no batch to say."""
        peaks = [self.document("estimate", f"train.py:{function}", *batch)["peak"] for function, batch in (
            ("make_step", ()), ("with_batch", ("--batch", "64")), ("make_step", ("--batch", "64")))]
        self.assertEqual(peaks[1:], peaks[:1] * 2)
        for function in ("with_device", "after_others"):  # the first got the size as its device
            peak = self.document("estimate", f"train.py:{function}", "--batch", "64")["peak"]
            self.assertEqual(peak, peaks[0])
        larger = self.document("estimate", "train.py:with_batch", "--batch", "128")["peak"]
        self.assertGreater(larger["allocated_bytes"], peaks[0]["allocated_bytes"])

    def test_inference(self):
        trained = self.document("estimate", "train.py:module_and_inputs")
        only = self.document("estimate", "train.py:module_and_inputs", "--mode", "inference")
        self.assertEqual(only["at_peak"]["gradients_bytes"], 0)
        self.assertLess(only["peak"]["allocated_bytes"], trained["peak"]["allocated_bytes"] / 2)
        frozen = self.document("estimate", "train.py:frozen")
        self.assertEqual(frozen["peak"], only["peak"])
        self.assertIn("forward pass", frozen["notes"][0])
        done = self.run_headroom("fit", "train.py:module_and_inputs", "--gpus", "sim:1x2GiB", "--mode",
                                 "inference")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.run_headroom("fit", "train.py:frozen_rows", "--gpus", "sim:1x2GiB")
        self.assertIn("note: The model is in eval()", done.stdout)

    def test_a_compiled_module(self):
        plain = self.document("estimate", "train.py:module_and_inputs")
        compiled = self.document("estimate", "train.py:compiled")
        self.assertEqual(compiled["peak"], plain["peak"])
        self.assertIn("eager", compiled["notes"][0])

    def test_a_lazy_module(self):
        """It ended in "Attempted to use an uninitialized parameter"."""
        lazy, plain = (self.document("estimate", f"train.py:{one}") for one in ("lazy", "module_and_inputs"))
        self.assertEqual(lazy["model"]["parameters"], plain["model"]["parameters"])
        self.assertEqual(lazy["at_peak"]["gradients_bytes"], plain["at_peak"]["gradients_bytes"])

    def test_an_error_that_unknown_values_may_have_made(self):
        done = self.run_headroom("estimate", "train.py:inverse")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.count("read 1 unknown"), 1)

    def test_a_device_by_name(self):
        environment = {"CUDA_VISIBLE_DEVICES": ""}
        with mock.patch.dict(os.environ, environment):
            done = self.run_headroom("estimate", "train.py:on_cuda")
        self.assertEqual(done.returncode, 1)
        self.assertIn("simulated card", done.stderr)
        self.assertEqual(done.stderr.count("simulated card"), 1)

    def test_the_largest_batch(self):
        for function in ("make_step", "on_a_device"):
            found = self.document("fit", f"train.py:{function}", "--gpus", "sim:1x2GiB")
            self.assertTrue(found["proven"])
            self.assertEqual(found["recommended_batch"], int(0.9 * found["max_batch"]))
        done = self.run_headroom("fit", "train.py:make_step", "--gpus", "sim:1x100MiB")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("not even a batch of 1", done.stdout)

    def test_it_does_not_fit(self):
        done = self.run_headroom("estimate", "train.py:make_step", "--gpus", "sim:1x100MiB")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("does not fit", done.stdout)
        self.assertIn("this goes to standard error", done.stderr)
        self.assertNotIn("this goes", done.stdout)

    def test_its_text_is_as_rich_as_a_models(self):
        """A step in Python printed four lines, and a model by name a page."""
        done = self.run_headroom("estimate", "train.py:make_step", "--gpus", "sim:1x100MiB,1x2GiB", "--html",
                                 "step.html")
        for part in ("8.4 M parameters", "here the card ends", "Peak in optimizer of step 1", "O optimizer",
                     "Modules that hold the most", "On each card", "Tried, with what it would then need",
                     "the optimizer with fused=True"):
            self.assertIn(part, done.stdout)
        page = (pathlib.Path(self.folder.name) / "step.html").read_text(encoding="utf-8")
        self.assertIn("too much, the least room of 2 cards", page)

    def test_advice_is_tried(self):
        document = self.document("estimate", "train.py:make_step", "--gpus", "sim:1x100MiB")
        helps = {one["change"]: one for one in document["advice"]}
        self.assertEqual(set(helps), {"fused-optimizer", "8-bit-adamw"})
        eight_bit = helps["8-bit-adamw"]
        self.assertTrue(eight_bit["fits"])
        self.assertEqual(eight_bit["saves_process_bytes"], document["peak"]["process_bytes"] -
                         eight_bit["peak_process_bytes"])

    def test_a_trace(self):
        done = self.run_headroom("estimate", "train.py:make_step", "--trace", "step.hrtrace")
        self.assertEqual(done.returncode, 0, done.stderr)
        top = self.run_headroom("trace", "top", "step.hrtrace")
        self.assertEqual(top.returncode, 0, top.stderr)

    def test_wrong_orders(self):
        for arguments, code, words in (
                (("estimate", "train.py:make_stp"), 64, "make_step"),
                (("estimate", "nowhere.py:make_step"), 65, "no such file"),
                (("estimate", "train.py:nothing"), 64, "(model, step)"),
                (("estimate", "train.py:broken"), 1, "KeyError"),
                (("estimate", "train.py"), 64, "received none; it has net, make_step"),
                (("estimate", "train.py:ends"), 1, "(SystemExit: 7); try `if __name__"),
                (("estimate", "train.py:module_and_inputs", "--dtype", "bfloat16"), 64, "--dtype"),
                (("estimate", "train.py:frozen", "--batch", "4"), 64, "def frozen(batch)"),
                (("estimate", "train.py:with_batch"), 64, "try --batch 8"),
                (("estimate", "train.py:two", "--batch", "4"), 64, "defaults for the others"),
                (("estimate", "train.py:make_step", "--mode", "inference"), 64, "received a step"),
                (("estimate", "train.py:make_step", "--mode", "generate"), 64, "train or inference"),
                (("fit", "train.py:make_step", "--gpus", "sim:1x2GiB", "--batch", "4"), 64, "--batch"),
                (("estimate", "train.py:make_step", "--quick"), 64, "--quick"),
                (("fit", "train.py:broken", "--gpus", "RTX 4090"), 64, "def broken(batch)"),
                (("fit", "train.py:make_step", "--over", "seq"), 64, "batch")):
            done = self.run_headroom(*arguments)
            self.assertEqual(done.returncode, code, f"{arguments}: {done.stderr}")
            self.assertIn(words, done.stderr)

    def test_a_python_without_the_package(self):
        done = subprocess.run([HEADROOM, "estimate", "train.py:make_step"], cwd=self.folder.name,
                              env={"PATH": "/usr/bin:/bin", "HEADROOM_PYTHON": "/bin/false"},
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 69)
        self.assertIn("HEADROOM_PYTHON", done.stderr)


if __name__ == "__main__":
    unittest.main()

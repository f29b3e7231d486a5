"""headroom.profile(): beside torch.profiler's own table of the same events, on simulated cards, and where
a profiler ends badly."""
import gc
import json
import os
import tempfile
import types
import unittest
import weakref

import torch
from torch import nn
from torch.profiler import ProfilerActivity, record_function

import headroom
from headroom import command


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(256, 1024)
        self.down = nn.Linear(1024, 256)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


def model_on(device):
    return nn.Sequential(Block(), Block(), nn.LayerNorm(256)).to(device)


def step_of(device):
    model = model_on(device)
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(64, 256, device=device)

    def step():
        optimizer.zero_grad()
        with record_function("the forward"):
            loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()

    return step


def by_name(rows):
    return {row.name: row for row in rows}


class BesideTorchProfiler(unittest.TestCase):
    """One run, read twice: by torch.profiler and by Headroom."""

    @classmethod
    def setUpClass(cls):
        step = step_of("cpu")
        step()
        with torch.profiler.profile(activities=[ProfilerActivity.CPU], record_shapes=True,
                                    profile_memory=True) as recorded:
            step()
        cls.recorded = recorded
        cls.ours = headroom.profile.of(recorded)

    def test_calls_and_times_are_those_of_key_averages(self):
        ours = by_name(self.ours.rows)
        theirs = {one.key: one for one in self.recorded.key_averages()}
        self.assertGreater(len(theirs), 40)
        self.assertEqual(len(ours), len(theirs))
        for name, one in theirs.items():
            if name == "[memory]":
                continue
            self.assertEqual(ours[name].calls, one.count, name)
            self.assertAlmostEqual(ours[name].cpu_s * 1e6, one.cpu_time_total, msg=name,
                                   delta=0.02 * one.cpu_time_total)
            self.assertAlmostEqual(ours[name].self_cpu_s * 1e6, one.self_cpu_time_total, msg=name,
                                   delta=0.02 * one.self_cpu_time_total + 0.01)

    def test_shapes_group_as_theirs(self):
        ours = self.ours.rows_by("shape")
        theirs = self.recorded.key_averages(group_by_input_shape=True)
        self.assertEqual(sorted((row.name, json.dumps(row.shapes), row.calls) for row in ours
                                if row.name == "aten::addmm"),
                         sorted((one.key, json.dumps(one.input_shapes), one.count) for one in theirs
                                if one.key == "aten::addmm"))

    def test_every_allocation_is_counted_once(self):
        allocated = sum(event.nbytes() for event in self.recorded.profiler.kineto_results.events()
                        if event.name() == "[memory]" and event.nbytes() > 0)
        self.assertEqual(sum(row.self_cpu_bytes for row in self.ours.rows), allocated)

    def test_a_profile_that_runs_is_refused(self):
        with self.assertRaises(headroom.UsageError):
            headroom.profile.of(torch.profiler.profile())

    def test_a_profile_without_memory_is_refused(self):
        with torch.profiler.profile(activities=[ProfilerActivity.CPU]) as recorded:
            torch.ones(2)
        with self.assertRaisesRegex(headroom.UsageError, "profile_memory and record_shapes"):
            headroom.profile.of(recorded)


class OnTheCpu(unittest.TestCase):
    def test_names_modules_in_both_passes_and_ranges(self):
        step = step_of("cpu")
        with headroom.profile() as profile:
            step()
        modules = by_name(profile.rows_by("module"))
        up = modules["0.up"]
        # Forward: the result of 64 x 1024 floats. Backward: the gradient of weight, and of bias.
        self.assertGreaterEqual(up.self_cpu_bytes, 4 * (64 * 1024 + 1024 * 256 + 1024))
        self.assertGreater(modules["0"].cpu_bytes, up.cpu_bytes)
        self.assertEqual(modules[""].cpu_bytes, sum(one.self_cpu_bytes for one in modules.values()))
        rows = by_name(profile.rows)
        self.assertEqual((rows["the forward"].kind, rows["the forward"].calls), ("range", 1))
        self.assertIsNone(rows["aten::addmm"].device_s)
        self.assertFalse(profile.simulated_time)

    def test_keeps_what_ran_before_an_exception(self):
        with self.assertRaises(ZeroDivisionError):
            with headroom.profile() as profile:
                nn.Linear(4, 4)(torch.ones(2, 4))
                1 / 0
        self.assertEqual(by_name(profile.rows)["aten::addmm"].calls, 1)
        with headroom.profile() as again:
            torch.ones(2)
        self.assertIn("aten::ones", by_name(again.rows))

    def test_keeps_no_model_alive(self):
        model = nn.Sequential(nn.Linear(4, 4))
        with headroom.profile() as profile:
            model(torch.ones(2, 4))
        kept = weakref.ref(model)
        del model
        gc.collect()
        self.assertIsNone(kept())
        self.assertIn("0", by_name(profile.rows_by("module")))

    def test_keeps_the_profile_when_a_range_cannot_end(self):
        profile = headroom.profile()
        with self.assertRaises(ZeroDivisionError):
            with profile:
                torch.ones(2)
                profile._open().append(types.SimpleNamespace(end=lambda: 1 / 0))
        self.assertIn("aten::ones", by_name(profile.rows))
        with headroom.profile():  # and PyTorch's profiler is off again
            pass

    def test_profilers_do_not_nest(self):
        with headroom.profile():
            with self.assertRaises(headroom.UsageError):
                with headroom.profile():
                    pass
        with self.assertRaises(headroom.UsageError):
            with headroom.profile():
                with torch.profiler.profile(activities=[ProfilerActivity.CPU]):
                    pass
        with torch.profiler.profile(activities=[ProfilerActivity.CPU]):
            with self.assertRaises(headroom.UsageError):
                with headroom.profile():
                    pass
        with headroom.profile() as profile:
            torch.ones(2)
        self.assertEqual(by_name(profile.rows)["aten::ones"].calls, 1)

    def test_prints_saves_and_shows_itself(self):
        step = step_of("cpu")
        with headroom.profile() as profile:
            self.assertRaises(headroom.UsageError, profile.table)
            self.assertEqual(profile._repr_html_(), str(profile))
            step()
        for line in profile.table(row_limit=0).splitlines()[:-1]:
            self.assertLessEqual(len(line), 100)
        self.assertEqual(profile.table(sort_by="cpu_time_total"), profile.table(sort_by="cpu_s").replace(
            "by cpu_s", "by cpu_time_total"))
        self.assertRaises(headroom.UsageError, profile.table, sort_by="bytes")
        self.assertRaises(headroom.UsageError, profile.table, group_by="modules")
        self.assertIn("<td>aten::", profile._repr_html_())
        with tempfile.TemporaryDirectory() as folder:
            chrome, rows = os.path.join(folder, "chrome.json"), os.path.join(folder, "rows.json")
            profile.save_chrome(chrome)
            profile.save(rows)
            with open(chrome, encoding="utf-8") as file:
                events = json.load(file)["traceEvents"]
            with open(rows, encoding="utf-8") as file:
                self.assertEqual(json.load(file), profile.document())
        self.assertEqual({event["ph"] for event in events}, {"X", "C"})
        self.assertIn("memory cpu", {event["name"] for event in events})


class InTheCommand(unittest.TestCase):
    """`headroom profile train.py:make_step`, without the process."""

    def test_refuses_a_wrong_figure_before_it_runs_and_writes(self):
        request = {"sort_by": "bytes", "row_limit": 10, "group_by": "operator", "steps": 1, "trace": "no.json",
                   "rules": "cuda", "allocator": None}
        run = types.SimpleNamespace(request=request, cards=lambda: [{"name": "RTX 4090"}],
                                    spec=lambda card: card["name"],
                                    make=lambda *_: self.fail("the step was made"))
        with self.assertRaisesRegex(headroom.UsageError, "sort_by"):
            command.profile(run)
        self.assertFalse(os.path.exists("no.json"))


class OnASimulatedCard(unittest.TestCase):
    def test_has_the_bytes_of_the_card_and_modelled_time(self):
        with headroom.simulate("RTX 4090"):
            step = step_of("sim")
            before = torch.sim.memory_stats()["requested_bytes.all.allocated"]
            with headroom.profile() as profile:
                step()
            allocated = torch.sim.memory_stats()["requested_bytes.all.allocated"] - before
        self.assertEqual(sum(row.self_bytes for row in profile.rows), allocated)
        self.assertTrue(profile.simulated_time)
        rows, modules = by_name(profile.rows), by_name(profile.rows_by("module"))
        self.assertGreater(rows["aten::addmm"].device_s, 0)
        self.assertEqual(rows["aten::addmm"].calls, 4)
        self.assertEqual(rows["aten::t"].device_s, 0)
        self.assertGreaterEqual(modules["1.up"].self_bytes, 4 * 64 * 1024)
        self.assertIn("at the rates of: RTX 4090", str(profile))

    def test_works_for_programs_that_name_cuda(self):
        with headroom.as_cuda("1xH100"):
            step = step_of("cuda")
            with headroom.profile() as profile:
                step()
        self.assertGreater(by_name(profile.rows)["aten::mm"].self_bytes, 0)

    def test_survives_an_out_of_memory(self):
        with headroom.simulate("1GiB"):
            with self.assertRaises(torch.OutOfMemoryError):
                with headroom.profile() as profile:
                    kept = torch.empty(600, 1 << 20, dtype=torch.uint8, device="sim")
                    kept + kept
        self.assertEqual(by_name(profile.rows)["aten::empty"].self_bytes, 600 << 20)
        self.assertEqual(by_name(profile.rows)["aten::add"].calls, 1)


if __name__ == "__main__":
    unittest.main()

"""A rehearsal of a script has, to the byte, the peak that a dry run of its step has; and with the rules of the
CPU that which PyTorch's MemTracker counts there."""
import json
import pathlib
import subprocess
import sys
import unittest

import torch
from torch.distributed._tools.mem_tracker import MemTracker

import programs
import steps

import headroom

HERE = pathlib.Path(__file__).resolve().parent


class Equal(unittest.TestCase):
    def test_the_peaks(self):
        for make in steps.STEPS:
            with self.subTest(make.__name__):
                with headroom.simulate("H100"):
                    model, step = make("sim")
                    expected = headroom.dry_run(step, model=model, steps=3)
                found = self.rehearsed(make.__name__)
                # Blocks, and 512 bytes more or less of small tensors, depend on what was freed before.
                self.assertEqual(found["peak"]["requested_bytes"], expected.peak.requested)
                self.assertEqual(found["at_peak"]["parameters_bytes"], expected.at_peak.parameters)
                self.assertEqual(found["steps"], 3)
                self.assertIn("steps.py:", found["script_line_at_peak"])

    def test_an_out_of_memory_is_told_with_the_need(self):
        whole = self.rehearsed("gpt", "sim:1x80GiB")
        small = self.rehearsed("gpt", "sim:1x200MiB", code=2)
        self.assertFalse(small["fits"])
        self.assertEqual(small["ooms_met"], 1)
        self.assertEqual(small["peak"]["requested_bytes"], whole["peak"]["requested_bytes"])

    def test_the_peaks_that_memtracker_counts(self):
        for make in steps.STEPS:
            # It cannot track parameters that are not trained, and counts an LSTM's single steps, which the CPU
            # does not take.
            if make in (steps.adapted, steps.recurrent):
                continue
            with self.subTest(make.__name__):
                tracker = MemTracker()
                with tracker:
                    _, step = make("cpu")
                    for _ in range(3):
                        step()
                        tracker.reset_mod_stats()
                expected = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
                found = self.rehearsed(make.__name__, rules="cpu")["peak"]["requested_bytes"]
                self.assertAlmostEqual(found / expected, 1, delta=0.001)

    def rehearsed(self, name, gpus="sim:1xH100", code=0, rules="cuda"):
        done = subprocess.run([programs.HEADROOM, "rehearse", "--json", "--gpus", gpus, "--rules", rules, "--",
                               sys.executable, HERE / "steps.py", name], capture_output=True, text=True, check=False, timeout=600,
                              env=programs.environment())
        self.assertEqual(done.returncode, code, done.stderr[-2000:])
        return json.loads(done.stdout)


if __name__ == "__main__":
    unittest.main()

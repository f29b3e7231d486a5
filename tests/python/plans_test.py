"""headroom.plan: published models by the command, a module of one's own over replicas."""
import unittest

import torch
from torch import nn

import headroom


class Wide(nn.Module):
    """16 MiB of weights, and 4 MiB of activations a row."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(1024, 1024, bias=False) for _ in range(4))

    def forward(self, rows):
        for layer in self.layers:
            rows = torch.relu(layer(rows))
        return rows


def batch_of(rows):
    return torch.ones(rows, 128, 1024)


class Plans(unittest.TestCase):
    def test_a_published_model_is_planned_by_the_command(self):
        plan = headroom.plan("gpt2", gpus="sim:2x2GiB", batch=8, seq=128)
        self.assertTrue(plan.fits)
        self.assertEqual(plan.document["schema"], 1)
        self.assertEqual(plan.micro_batch * plan.accumulation * plan.replicas, 8)
        self.assertEqual([one["gpu"] for one in plan.split], [0, 1])
        self.assertTrue(all(0 < one < 2 * 2**30 for one in plan.peak_reserved_bytes))
        self.assertIn("headroom train model=full model.config=gpt2 ", plan.command)
        none = headroom.plan("gpt2-xl", gpus="sim:2x2GiB")
        self.assertFalse(none.fits)
        self.assertIn("GiB are allowed", none.why_not)

    def test_its_errors_are_those_of_the_command(self):
        with self.assertRaisesRegex(headroom.UsageError, "gpt9"):
            headroom.plan("gpt9", gpus="sim:2x2GiB")
        with self.assertRaisesRegex(headroom.UsageError, "--zero"):
            headroom.plan("gpt2", gpus="sim:2x2GiB", zero=2)

    def test_a_model_of_transformers_has_its_config(self):
        from transformers import GPT2Config, GPT2LMHeadModel
        small = GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=64, n_head=4, vocab_size=256, n_positions=64))
        plan = headroom.plan(small, gpus="sim:2x1GiB", batch=8, seq=32)
        self.assertTrue(plan.fits)
        self.assertGreater(plan.step_s, 0)

    def test_a_module_of_ones_own_is_planned_over_replicas_and_says_so(self):
        plan = headroom.plan(Wide(), batch_of, gpus="sim:3x1GiB", batch=32)
        self.assertTrue(plan.fits)
        self.assertIn("cannot be split into stages", plan.notes[0])
        self.assertEqual((plan.replicas, plan.micro_batch, plan.accumulation), (3, 11, 1))
        # Its peak is what the step takes, and a plan keeps 512 MiB free.
        alone = headroom.estimate(Wide(), batch_of(11)).peak.reserved
        self.assertEqual(plan.peak_reserved_bytes, [alone] * 3)
        self.assertLessEqual(alone, 2**29)

    def test_rows_that_do_not_fit_come_in_parts(self):
        plan = headroom.plan(Wide(), lambda rows: torch.ones(rows, 1024, 1024), gpus="sim:2x1GiB", batch=64)
        self.assertEqual(plan.replicas, 2)
        self.assertGreater(plan.accumulation, 1)
        self.assertGreaterEqual(plan.micro_batch * plan.accumulation, 32)
        self.assertLessEqual(max(plan.peak_reserved_bytes), 2**29)
        # With parts of a row more it would not fit.
        gradients = 4 * 4 * 1024**2
        more = headroom.estimate(Wide(), torch.ones(plan.micro_batch + 4, 1024, 1024)).peak.reserved + gradients
        self.assertGreater(more, 2**29)

    def test_what_fits_nowhere_says_how_much_is_missing(self):
        plan = headroom.plan(Wide(), lambda rows: torch.ones(rows, 2**17, 1024), gpus="sim:2x1GiB", batch=4)
        self.assertFalse(plan.fits)
        self.assertIn("one row needs", plan.why_not)
        self.assertIn("does not fit", repr(plan))

    def test_nonsense_is_refused(self):
        with self.assertRaisesRegex(headroom.UsageError, "create_batch_fn"):
            headroom.plan(Wide(), gpus="sim:2x1GiB")
        with self.assertRaisesRegex(headroom.UsageError, "settings"):
            headroom.plan(Wide(), batch_of, gpus="sim:2x1GiB", seq=3)


if __name__ == "__main__":
    unittest.main()

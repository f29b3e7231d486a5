"""transformers' models through `headroom.estimate`: beside what MemTracker says of the same code, and with
each of the ways to save memory that a model offers by its methods."""
import json
import pathlib
import sys
import unittest

PEERS = pathlib.Path(__file__).resolve().parent.parent / "peers"
sys.path.insert(0, str(PEERS))

import torch  # noqa: E402
import transformers  # noqa: E402

import headroom  # noqa: E402
import models_test  # noqa: E402
import transformers_steps  # noqa: E402

# Its experts' tokens are a matter of values, which models_test.py answers.
LEFT_OUT = {"mixtral-2"}


def read(name):
    return json.loads((PEERS / name).read_text())


def estimated(case):
    made = []

    def model():
        made[:] = [transformers_steps.Training(case)]
        return made[0].model

    return headroom.estimate(
        model, lambda: made[0].batch, rules="cpu", cublas_workspaces=False,
        optimizer=lambda parameters: transformers_steps.optimizer_of(made[0].settings, parameters))


def is_a_plain_step(settings):
    """What estimate() can be told."""
    return not any(settings.get(key) for key in ("clip", "hold_outputs")) and \
        settings.get("accumulation", 1) == 1 and settings.get("zero_grad", "none") == "none"


class BesideMemTracker(unittest.TestCase):
    """The comparison ran on a box alone, and so did not see that no estimate with activation checkpointing
    came through."""

    def test_each_kind_of_checkpointing(self):
        figures = read(transformers_steps.FIGURES)["peak_bytes"]
        seen = set()
        for case in read("transformers_cases.json")["cases"]:
            settings = case["settings"]
            kind = settings.get("checkpointing_kind", "nonreentrant") \
                if settings.get("checkpointing") == "full" else "none"
            if not is_a_plain_step(settings) or case["config"] in LEFT_OUT or \
                    (case["config"], kind) in seen or (kind == "none" and len(seen) > 5):
                continue
            seen.add((case["config"], kind))
            with self.subTest(case["name"]):
                judge = "plain" if case["name"] in models_test.MEMTRACKER_IS_OFF else "memtracker"
                judge = models_test.highest(figures[case["name"]][judge])
                off = abs(estimated(case).peak.requested / judge - 1)
                print(f"{100 * off:8.4f} %  {case['name']}", flush=True)
                self.assertLess(off, 0.005)
        self.assertEqual({kind for _, kind in seen}, {"none", "reentrant", "nonreentrant"})


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=4, n_embd=128, n_head=4, vocab_size=512))


IDS = torch.zeros(4, 256, dtype=torch.long)
BATCH = {"input_ids": IDS, "labels": IDS, "attention_mask": torch.ones_like(IDS)}


class WaysToSaveMemory(unittest.TestCase):
    def peak_of(self, change):
        model = gpt2()
        change(model)
        return headroom.estimate(model, BATCH).peak.allocated

    def test_checkpointing_of_a_model_and_of_what_a_function_makes(self):
        plain = self.peak_of(lambda model: None)
        for reentrant in (True, False):
            def change(model, reentrant=reentrant):
                model.gradient_checkpointing_enable({"use_reentrant": reentrant})
                return model
            self.assertLess(self.peak_of(change), 0.8 * plain)
            self.assertEqual(headroom.estimate(lambda: change(gpt2()), lambda: BATCH).peak.allocated,
                             self.peak_of(change))
            found = headroom.find_max_batch_size(
                change(gpt2()), lambda n: {name: one[:1].expand(n, -1) for name, one in BATCH.items()},
                gpu="1GiB", max_batch=32)
            self.assertGreater(found, 0)

    def test_all_that_a_model_can_enable(self):
        names = [name for name in dir(gpt2()) if name.startswith("enable_")]
        self.assertIn("enable_input_require_grads", names)
        for name in names:
            try:
                getattr(gpt2(), name)()
            except (ImportError, ValueError, TypeError):  # wants another package, or more than nothing
                continue
            with self.subTest(name):
                self.assertGreater(self.peak_of(lambda model, name=name: getattr(model, name)()), 0)


if __name__ == "__main__":
    unittest.main()

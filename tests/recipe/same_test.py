"""Ten steps through `recipe`, by the examples of docs/guides/training-loop.md, give the weights that the command gives
after ten steps: every file of the result is the same to the byte.

    same_test.py HEADROOM PROGRAM...    the example, to which the folder and the keys are appended
"""
import filecmp
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HEADROOM, *PROGRAM = sys.argv[1:]
GPT = {"model_type": "gpt2", "vocab_size": 50, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2,
       "bos_token_id": 0, "eos_token_id": 0}
VIT = {"model_type": "vit", "image_size": 16, "patch_size": 8, "hidden_size": 32, "num_hidden_layers": 2,
       "num_attention_heads": 2, "intermediate_size": 64}
LORA = ["model=lora", "model.lora_dropout=0.1", "batch_size=8"]
TRAININGS = {
    "adapters of a vision transformer": (VIT, LORA),
    "adapters with half precision, clipping and a schedule":
        (VIT, [*LORA, "bf16=true", "max_grad_norm=0.1", "scheduler=cosine", "warmup_steps=3", "seed=7"]),
    "a linear probe with momentum": (VIT, ["model=linear_probe", "optimizer=sgd", "batch_size=5"]),
    "a whole language model": (GPT, ["model=full", "batch_size=4", "gradient_checkpointing=true", "loss=chunked:7"]),
    "a small GPT of its own": (None, ["model=gpt-tiny", "batch_size=4", "offload=activations"]),
}


class Same(unittest.TestCase):
    def test_as_the_command(self):
        for name, (config, keys) in TRAININGS.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                keys = [*keys, "dataset=synthetic", "steps=10"]
                if config:
                    (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
                    keys += [f"model.config={folder}/config.json", "weights=random"]
                ours, theirs = pathlib.Path(folder) / "recipe", pathlib.Path(folder) / "command"
                self.run_in(folder, [HEADROOM, "train", *keys, "device=cpu", "allow_cpu=true", f"out={theirs}"])
                theirs /= "adapter" if "model=lora" in keys else "model"
                losses = self.run_in(folder, [*PROGRAM, str(ours), *keys]).split()
                self.assertEqual(len(losses), 10)
                self.assertGreater(len(set(losses)), 5)
                files = sorted(one.name for one in ours.iterdir())
                self.assertTrue(any(one.endswith(".safetensors") for one in files), files)
                same, different, missing = filecmp.cmpfiles(ours, theirs, files, shallow=False)
                self.assertEqual((different, missing), ([], []), same)

    def run_in(self, folder, command):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

"""QLoRA scripts as they are published: what quantised weights save, paged states, missing files."""
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import programs

GIB = 1 << 30
# torchtune's setting for llama-3.2-3b: 2 x 4,096 tokens, bf16, adapters of rank 64 on all projections but keys,
# activation checkpointing and offloading, the loss in chunks.
TORCHTUNE = """
import sys
import torch
from peft import LoraConfig, get_peft_model
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

quantization = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                                  bnb_4bit_compute_dtype=torch.bfloat16) if sys.argv[1] == "qlora" else None
model = AutoModelForCausalLM.from_pretrained("base", dtype=torch.bfloat16, device_map={"": 0},
                                             quantization_config=quantization)
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
model.enable_input_require_grads()
model = get_peft_model(model, LoraConfig(r=64, lora_alpha=128, target_modules=[
    "q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]), autocast_adapter_dtype=False)
trained = [one for one in model.parameters() if one.requires_grad]
for one in trained:
    one.data = one.data.bfloat16()
model.train()
optimizer = torch.optim.AdamW(trained, lr=3e-4, fused=True)
body, head = model.base_model.model.model, model.base_model.model.lm_head

def loss_of(logits, labels):
    return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), reduction="sum")

for step in range(3):
    ids = torch.randint(0, 128256, (2, 4096), device="cuda")
    with torch.autograd.graph.save_on_cpu():
        hidden = body(input_ids=ids).last_hidden_state
    chunks = [head(one) for one in hidden.chunk(256, 1)]
    del hidden
    loss = sum(checkpoint(loss_of, *one, use_reentrant=False) for one in zip(chunks, ids.chunk(256, 1)))
    del chunks
    (loss / ids.numel()).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
LLAMA_3B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256, "hidden_size": 3072,
    "intermediate_size": 8192, "num_hidden_layers": 28, "num_attention_heads": 24, "num_key_value_heads": 8,
    "head_dim": 128, "max_position_embeddings": 131072, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    "use_cache": False}


def rehearsed(folder, *command):
    done = subprocess.run([programs.HEADROOM, "rehearse", "--json", "--gpus", "A100 40GB", "--", sys.executable,
                           *command], capture_output=True, text=True, timeout=600, env=programs.environment(),
                          cwd=folder, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


@unittest.skipUnless(importlib.util.find_spec("bitsandbytes"), "needs bitsandbytes")
class Qlora(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        (self.folder / "base").mkdir()

    def test_what_torchtune_published(self):
        """LoRA 8.5 GiB, QLoRA 4.6. Only the configuration is there, and no weights."""
        (self.folder / "base" / "config.json").write_text(json.dumps(LLAMA_3B))
        (self.folder / "train.py").write_text(TORCHTUNE)
        lora, qlora = (rehearsed(self.folder, "train.py", how) for how in ("lora", "qlora"))
        peaks = [one["peak"]["requested_bytes"] / GIB for one in (lora, qlora)]
        self.assertAlmostEqual(peaks[0] - peaks[1], 8.5 - 4.6, delta=0.05)
        self.assertAlmostEqual(peaks[0], 8.5, delta=0.05 * 8.5)
        self.assertAlmostEqual(peaks[1], 4.6, delta=0.05 * 4.6)
        self.assertEqual(qlora["model"]["parameters"], lora["model"]["parameters"])  # not its packed bytes

    def test_paged_states_are_the_hosts(self):
        small = {**LLAMA_3B, "hidden_size": 6400, "num_hidden_layers": 2, "vocab_size": 1024}  # from 100,000 numbers on
        (self.folder / "base" / "config.json").write_text(json.dumps(small))
        script = str(programs.HERE / "programs" / "qlora.py")
        peaks = {}
        for optimizer in ("adamw_torch_fused", "adamw_bnb_8bit", "paged_adamw_8bit"):
            document = rehearsed(self.folder, script, "--base", "base", "--out", "out", "--optim", optimizer)
            self.assertEqual(document["steps"], 3)
            peaks[optimizer] = document["at_peak"]["optimizer_bytes"]
        self.assertGreater(peaks["adamw_torch_fused"], 3 * peaks["adamw_bnb_8bit"])
        self.assertGreater(peaks["adamw_bnb_8bit"], 3 * peaks["paged_adamw_8bit"])


if __name__ == "__main__":
    unittest.main()

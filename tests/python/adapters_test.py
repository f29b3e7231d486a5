"""Adapters' files between Headroom and peft: what one saves the other loads, with equal outputs."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

import peft
import torch
import transformers
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEER = ROOT / os.environ.get("HEADROOM_BUILD", "build") / "bin" / "adapter_peer"
sys.path.insert(0, str(ROOT / "tests" / "peers"))
from transformers_numbers import integers, set_weights, values  # noqa: E402
from transformers_numbers_cases import NO_DROPOUT, SIZES  # noqa: E402

MODELS = ("gpt2", "llama")


class AdapterNet(nn.Module):
    """The twin of tests/weights/adapter_net.h."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 6)
        self.q = nn.Linear(6, 6)
        self.inner = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 4))
        self.wide = nn.Conv1d(4, 5, 3, padding=1)
        self.flat = nn.Conv2d(1, 2, (3, 2), stride=2, padding=1)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                parameter.copy_(values(name, parameter.shape))

    def forward(self, tokens):
        states = self.inner(torch.tanh(self.q(self.table(tokens))))
        return self.flat(self.wide(states.transpose(1, 2)).unsqueeze(1))


def config_of(kind):
    sizes = SIZES[kind] | NO_DROPOUT.get(kind, {}) | {"tie_word_embeddings": kind == "gpt2"}
    config = transformers.AutoConfig.for_model(kind, **sizes)
    config.architectures = [{"gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM"}[kind]]
    return config


def model_of(kind):
    if kind == "net":
        return AdapterNet().eval()
    model = transformers.AutoModelForCausalLM.from_config(config_of(kind))
    set_weights(model)
    return model.eval()


def output_of(model, kind):
    with torch.no_grad():
        if kind == "net":
            return model(integers("tokens", (2, 7), 0, 10))
        vocabulary = SIZES[kind]["vocab_size"]
        return model(input_ids=integers("tokens", (2, 7), 3, vocabulary)).logits


def fill(model):
    """The same in every run; peft's B starts at zero."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(0.3 * values(name, parameter.shape))


def peer(action, case, kind, folder):
    """The outputs of Headroom's model: with the adapters beside the weights, and merged into them, where
    no weight is tied."""
    config = "net"
    if kind != "net":
        config = str(folder / "model" / "config.json")
        config_of(kind).save_pretrained(folder / "model")
    done = subprocess.run([str(PEER), action, case, config, str(folder / "adapter")],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return [torch.tensor([float(x) for x in line.split()]) for line in done.stdout.splitlines()]


class AdapterFiles(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")
        transformers.logging.set_verbosity_error()
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def assert_equal(self, output, outputs, plain):
        self.assertGreater((output - plain).abs().max(), 1e-3)
        for each in outputs:
            torch.testing.assert_close(each, output.flatten(), rtol=1e-4, atol=1e-5)

    def check_written(self, kind, case, layers=None):
        outputs = peer("write", case, kind, self.folder)
        model = model_of(kind)
        plain = output_of(model, kind)
        names = [name for name, _ in model.named_modules()]
        loaded = peft.PeftModel.from_pretrained(model, self.folder / "adapter")
        self.assert_equal(output_of(loaded, kind), outputs, plain)
        tied = kind == "gpt2" and case in ("head", "patterns")
        self.assertEqual(len(outputs), 1 if tied else 2)
        if not tied:
            self.assert_equal(output_of(loaded.merge_and_unload(), kind), outputs, plain)

        again = peft.PeftModel.from_pretrained(model_of(kind), self.folder / "adapter")
        stored = peft.utils.load_peft_weights(self.folder / "adapter", device="cpu")
        own = peft.get_peft_model_state_dict(again)
        self.assertEqual({k: v.shape for k, v in stored.items()},
                         {k: v.shape for k, v in own.items() if "lora_" in k})
        targeted = again.base_model.targeted_module_names
        self.assertLessEqual(set(targeted), set(names))
        if layers is not None:
            self.assertEqual(sorted(targeted), sorted(layers))

    def check_read(self, kind, **options):
        model = model_of(kind)
        plain = output_of(model, kind)
        adapted = peft.get_peft_model(model, peft.LoraConfig(**options))
        fill(adapted)
        adapted.eval()
        adapted.save_pretrained(self.folder / "adapter")
        self.assert_equal(output_of(adapted, kind), peer("read", "", kind, self.folder), plain)

    def test_peft_reads_what_headroom_wrote(self):
        for kind in MODELS:
            for case in ("attention", "all", "head", "stabilised", "patterns"):
                with self.subTest(kind=kind, case=case):
                    self.check_written(kind, case)

    def test_peft_reads_adapters_of_every_kind_of_layer(self):
        self.check_written("net", "every", ["table", "q", "inner.2", "wide", "flat"])
        self.check_written("net", "patterns", ["table", "q", "inner.0", "inner.2", "wide", "flat"])

    def test_the_config_says_what_peft_says(self):
        peer("write", "stabilised", "gpt2", self.folder)
        written = json.loads((self.folder / "adapter" / "adapter_config.json").read_text())
        options = {"r": 4, "lora_alpha": 6, "use_rslora": True, "target_modules": ["c_fc", "mlp.c_proj"]}
        model = peft.get_peft_model(model_of("gpt2"), peft.LoraConfig(**options))
        model.save_pretrained(self.folder / "theirs")
        theirs = json.loads((self.folder / "theirs" / "adapter_config.json").read_text())
        for key in ("target_modules", "base_model_name_or_path", "auto_mapping"):
            theirs.pop(key)
            written.pop(key)
        self.assertLessEqual(written.items(), theirs.items())

    def test_the_weights_are_the_same_file(self):
        peer("write", "attention", "llama", self.folder)
        file = self.folder / "adapter" / "adapter_model.safetensors"
        before = file.read_bytes()
        model = peft.PeftModel.from_pretrained(model_of("llama"), self.folder / "adapter")
        model.save_pretrained(self.folder / "adapter")
        self.assertEqual(file.read_bytes(), before)

    def test_headroom_reads_what_peft_wrote(self):
        ways = {
            "gpt2": [{"target_modules": ["c_attn"], "fan_in_fan_out": True},
                     {"target_modules": "all-linear", "r": 3, "lora_alpha": 7},
                     {"target_modules": r".*\.h\.[1-9]\.(attn\.c_attn|mlp\.c_fc)"},
                     {"target_modules": ["c_fc", "c_proj"], "exclude_modules": ["attn.c_proj"]}],
            "llama": [{"target_modules": ["q_proj", "v_proj"], "use_rslora": True, "lora_dropout": 0.1},
                      {"target_modules": ["q_proj", "up_proj"], "lora_alpha": 16,
                       "rank_pattern": {"q_proj": 3, r"layers\.\d+\.mlp\.up_proj": 5},
                       "alpha_pattern": {r"^model\.layers\.1\.self_attn\.q_proj": 9}},
                      {"target_modules": ["lm_head", "o_proj"]},
                      {"target_modules": ["o_proj"], "modules_to_save": ["lm_head"]},
                      {"target_modules": ["k_proj"], "task_type": "CAUSAL_LM", "r": 2}],
            "net": [{"target_modules": ["table", "q", "wide", "flat", "inner.0"], "r": 2},
                    {"target_modules": "all-linear", "r": 2}],
        }
        for kind, all_options in ways.items():
            for options in all_options:
                with self.subTest(kind=kind, **options):
                    self.check_read(kind, **options)

    def test_a_config_with_all_linear_itself_is_read(self):
        self.check_read("llama", target_modules="all-linear")
        file = self.folder / "adapter" / "adapter_config.json"
        config = json.loads(file.read_text())
        before = peer("read", "", "llama", self.folder)
        file.write_text(json.dumps(config | {"target_modules": "all-linear"}))
        for a, b in zip(before, peer("read", "", "llama", self.folder)):
            self.assertTrue(torch.equal(a, b))

    def test_what_headroom_cannot_load_is_refused_by_name(self):
        for options, key in (({"use_dora": True}, "use_dora"), ({"bias": "all"}, "bias"),
                             ({"layers_to_transform": [0]}, "layers_to_transform")):
            with self.subTest(key=key):
                with self.assertRaisesRegex(AssertionError, key):
                    self.check_read("llama", target_modules=["q_proj"], **options)


if __name__ == "__main__":
    unittest.main()

"""Low-rank adapters on frozen models of transformers, in PEFT's manner."""
import json
import math
import pathlib

import torch
import transformers
from torch import nn
from transformers.pytorch_utils import Conv1D

from zoo.training import HubTraining, labels, plain_step, predicted

CONFIGS = pathlib.Path(__file__).resolve().parents[2] / "peers" / "configs"


class Lora(nn.Module):
    """base(x) + scaling * B(A(dropout(x))); A and B may be of a wider type than base."""

    def __init__(self, base, dtype, rank=8, alpha=16, dropout=0.05):
        super().__init__()
        self.base, self.scaling = base, alpha / rank
        self.turned = isinstance(base, Conv1D)  # its weight is (in, out)
        outer, inner = reversed(base.weight.shape) if self.turned else base.weight.shape
        self.dropout = nn.Dropout(dropout)
        self.a = nn.Linear(inner, rank, bias=False, dtype=dtype)
        self.b = nn.Linear(rank, outer, bias=False, dtype=dtype)
        nn.init.kaiming_uniform_(self.a.weight, a=math.sqrt(5))
        nn.init.zeros_(self.b.weight)
        self.merged = False

    def delta(self):
        return self.turn(self.b.weight @ self.a.weight) * self.scaling

    def turn(self, weight):
        return weight.T if self.turned else weight

    def adapted(self, x):
        return self.b(self.a(self.dropout(x.to(self.a.weight.dtype)))) * self.scaling

    def forward(self, x):
        out = self.base(x)
        if self.merged:
            return out
        return (out + self.adapted(x)).to(out.dtype)

    @torch.no_grad()
    def merge(self):
        self.base.weight += self.delta().to(self.base.weight.dtype)
        self.merged = True

    @torch.no_grad()
    def unmerge(self):
        self.base.weight -= self.delta().to(self.base.weight.dtype)
        self.merged = False


class Dora(Lora):
    """The adapted weight's columns have lengths of their own, which are learned."""

    def __init__(self, base, dtype):
        super().__init__(base, dtype)
        self.magnitude = nn.Parameter(self.turn(base.weight).detach().norm(dim=1).to(dtype))

    def forward(self, x):
        out = self.base(x)
        weight = self.turn(self.base.weight + self.delta()).detach()
        scale = self.magnitude / torch.linalg.norm(weight, dim=1)
        plain = out if self.base.bias is None else out - self.base.bias
        return (out + (scale - 1) * plain + scale * self.adapted(x)).to(out.dtype)


def base_model(config, layers, dtype):
    values = json.loads((CONFIGS / f"{config}.json").read_text())
    values["n_layer" if "n_layer" in values else "num_hidden_layers"] = layers
    config = transformers.CONFIG_MAPPING[values.pop("model_type")].from_dict(values)
    return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).train()


def adapt(model, where, kind, dtype):
    for name, module in list(model.named_modules()):
        parent, _, last = name.rpartition(".")
        if last in where:
            setattr(model.get_submodule(parent), last, kind(module, dtype))


def autocast_step(training):
    with torch.autocast(training.batch[0].device.type, torch.bfloat16):
        loss = training.loss()
    loss.backward()
    training.optimizer.step()
    training.optimizer.zero_grad()


def merging_step(training):
    """Between steps the merged model is looked at, as a trainer does to evaluate."""
    plain_step(training)
    adapters = [module for module in training.net.modules() if isinstance(module, Lora)]
    for one in adapters:
        one.merge()
    with torch.no_grad():
        training.loss()
    for one in adapters:
        one.unmerge()


def lora(config, where, kind=Lora, dtype=torch.float32, adapter_dtype=torch.float32, reentrant=None,
         step=plain_step, layers=1):
    model = base_model(config, layers, dtype).requires_grad_(False)
    adapt(model, where, kind, adapter_dtype)
    if reentrant is not None:
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        model.enable_input_require_grads()
    return HubTraining(model, labels(2, 256, below=100), loss=predicted, step=step)


GPT2 = "gpt2", {"c_attn"}
LLAMA = "tinyllama-1.1b-4", {"q_proj", "v_proj"}
LLAMA_WHOLE = LLAMA[0], LLAMA[1] | {"gate_proj", "up_proj", "down_proj"}
BF16 = {"dtype": torch.bfloat16}

CASES = {
    "lora_gpt2": lambda: lora(*GPT2, layers=2),
    "lora_gpt2_reentrant": lambda: lora(*GPT2, reentrant=True),
    "lora_gpt2_nonreentrant": lambda: lora(*GPT2, reentrant=False),
    "lora_gpt2_autocast": lambda: lora(*GPT2, step=autocast_step),
    "lora_gpt2_merging": lambda: lora(*GPT2, step=merging_step),
    "dora_gpt2": lambda: lora(*GPT2, kind=Dora),
    "lora_llama": lambda: lora(*LLAMA, layers=2),
    "lora_llama_bf16": lambda: lora(*LLAMA, **BF16),
    "lora_llama_bf16_whole": lambda: lora(*LLAMA_WHOLE, **BF16, adapter_dtype=torch.bfloat16),
    "lora_llama_bf16_whole_reentrant": lambda: lora(*LLAMA_WHOLE, **BF16, reentrant=True),
    "lora_llama_bf16_whole_nonreentrant": lambda: lora(*LLAMA_WHOLE, **BF16, reentrant=False),
    "lora_llama_bf16_autocast": lambda: lora(*LLAMA_WHOLE, **BF16, step=autocast_step),
    "lora_llama_merging": lambda: lora(*LLAMA, step=merging_step),
    "dora_llama_bf16": lambda: lora(*LLAMA, kind=Dora, **BF16),
}

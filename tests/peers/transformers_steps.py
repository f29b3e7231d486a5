"""Training steps of transformers' models without data: the model of a case of
transformers_cases.json, its batch, its optimizer, and what such a step asks of data it has not."""
import json
import pathlib
from unittest import mock

import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

MAJOR = int(transformers.__version__.split(".")[0])
# What stored figures are of.
VERSION = "4.57" if MAJOR == 4 else "5"
FIGURES = f"transformers_figures_{VERSION}.json"
# Model types whose attention has only the eager form.
ONLY_EAGER = {"gemma2"} if MAJOR >= 5 else set()
# transformers 5 takes fake tensors for a compiler's, and then makes masks that a card would not get.
transformers.utils.import_utils.is_fake_tensor = lambda tensor: False

CONFIGS = pathlib.Path(__file__).resolve().parent / "configs"
HEADS = {
    "causal-lm": transformers.AutoModelForCausalLM,
    "masked-lm": transformers.AutoModelForMaskedLM,
    "sequence-classification": transformers.AutoModelForSequenceClassification,
    "image-classification": transformers.AutoModelForImageClassification,
    "seq2seq-lm": transformers.AutoModelForSeq2SeqLM,
}
ENDINGS = {"ForCausalLM": "causal-lm", "LMHeadModel": "causal-lm", "ForMaskedLM": "masked-lm",
           "ForSequenceClassification": "sequence-classification",
           "ForImageClassification": "image-classification",
           "ForConditionalGeneration": "seq2seq-lm"}
# A setting that a case leaves out.
DEFAULTS = {"task": None, "seq": None, "target_seq": None, "image": 224, "mask": "ones",
            "attention": None,  # the one kind that the model has, or sdpa
            "checkpointing": "none", "checkpointing_kind": "nonreentrant", "accumulation": 1,
            "clip": None, "zero_grad": "none", "use_cache": False, "hold_outputs": False}


class Answers(TorchFunctionMode):
    """Answers where Python asks a tensor without data (`unknown`) for its value:

    - Is the attention mask all ones? (`mask.all()`, `torch.all(mask == 1)`; since transformers 5
      `mask.sum() == mask.numel()`): yes, so sdpa gets no mask and keeps is_causal. Every other
      yes-or-no question is answered no: OPT's layer drop asks whether a random number is under 0.
    - Which experts have tokens, and which tokens are theirs? (`nonzero`, `torch.where` of Mixtral):
      all have, and each an equal share.
    - A number (`item`): 1; while a model is built 0, the drop path of ConvNext."""

    def __init__(self, number):
        super().__init__()
        self.number = number
        self.all_are, self.sums = WeakIdKeyDictionary(), WeakIdKeyDictionary()
        self.experts = self.asked = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in ("item", "tolist", "__bool__", "__index__", "__contains__") and unknown(args[0]):
            return self.value(name, args[0])
        if name == "nonzero":
            self.experts, self.asked = args[0].shape[0], 0
            return torch.empty(self.experts, 1, dtype=torch.int64, device=args[0].device)
        if name == "where" and len(args) == 1:
            choices, tokens = args[0].shape
            return torch.empty(choices * tokens // self.experts, 2, dtype=torch.int64,
                               device=args[0].device).unbind(1)
        result = func(*args, **(kwargs or {}))
        if name == "sum":
            self.sums[result] = True
        if name == "all" or (name in ("eq", "__eq__") and args[0] in self.sums):
            self.all_are[result] = True
        return result

    def value(self, name, tensor):
        if name == "__bool__":
            return tensor in self.all_are
        if name == "__contains__":
            return False
        if name == "__index__":
            self.asked += 1
            return (self.asked - 1) % self.experts
        return [self.number] * tensor.numel() if name == "tolist" and tensor.dim() else self.number


def unknown(tensor):
    """Without data: a fake tensor, or one on a simulated card."""
    if isinstance(tensor, FakeTensor):
        return tensor.constant is None
    return tensor.device.type == "sim"


def optimizer_of(settings, parameters):
    kind, form = settings["optimizer"], settings["optimizer_impl"]
    form = {"foreach": form == "foreach", "fused": form == "fused"}
    match kind:
        case "adamw":
            return torch.optim.AdamW(parameters, lr=1e-3, **form)
        case "adam":
            return torch.optim.Adam(parameters, lr=1e-3, **form)
        case "sgd" | "sgd-momentum":
            momentum = 0.9 if kind == "sgd-momentum" else 0
            return torch.optim.SGD(parameters, lr=1e-3, momentum=momentum, **form)
        case "adafactor":
            return torch.optim.Adafactor(parameters, lr=1e-2, foreach=form["foreach"])
        case "adafactor-hf":
            return transformers.optimization.Adafactor(
                parameters, lr=1e-3, scale_parameter=False, relative_step=False,
                warmup_init=False)
    raise ValueError(f"no optimizer {kind}")


class Training:
    """Made under FakeTensorMode, or on a simulated card."""

    def __init__(self, case):
        self.settings = {**DEFAULTS, **case["settings"]}
        self.dtype = getattr(torch, self.settings["dtype"])
        self.model = self.build(case["config"])
        self.parameters = list(self.model.parameters())
        self.optimizer = optimizer_of(self.settings, self.parameters)
        self.batch = self.empty_batch()

    def build(self, name):
        values = json.loads((CONFIGS / f"{name}.json").read_text())
        kind = values.pop("model_type")
        config = transformers.CONFIG_MAPPING[kind].from_dict(values)
        config.use_cache = self.settings["use_cache"]
        self.task = self.settings["task"] or next(
            task for end, task in ENDINGS.items() if config.architectures[0].endswith(end))
        attention = None if kind in ONLY_EAGER else self.settings["attention"]
        with Answers(0.0):
            model = HEADS[self.task].from_config(
                config, attn_implementation=attention, dtype=self.dtype).train()
        if kind == "t5" and not values.get("tie_word_embeddings", True):
            # transformers 5 ties all the same, unless it loads a checkpoint, which has this head.
            model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.shared.weight))
        if self.settings["checkpointing"] == "full":
            reentrant = self.settings["checkpointing_kind"] == "reentrant"
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        return model

    def empty_batch(self):
        rows, length = self.settings["batch"], self.settings["seq"]
        tokens = lambda *sizes: torch.zeros(sizes, dtype=torch.int64)
        if self.task == "image-classification":
            side = self.settings["image"]
            return {"pixel_values": torch.zeros(rows, 3, side, side, dtype=self.dtype),
                    "labels": tokens(rows)}
        batch = {"input_ids": tokens(rows, length)}
        if self.settings["mask"] == "ones":
            batch["attention_mask"] = torch.ones(rows, length, dtype=torch.int64)
        if self.task == "sequence-classification":
            batch["labels"] = tokens(rows)
        else:
            batch["labels"] = tokens(rows, self.settings["target_seq"] or length)
        return batch

    def tensors(self):
        return [*self.parameters, *self.model.buffers(), *self.batch.values()]

    def host_tensors(self):
        """Adam's counts of steps, which lie on the CPU beside a card but for the fused form."""
        if self.settings["optimizer_impl"] == "fused":
            return []
        return [state["step"] for state in self.optimizer.state.values()
                if isinstance(state.get("step"), torch.Tensor)]

    def on_host_tensors(self, note):
        """Calls note for each of them as soon as the optimizer has made its state."""
        make_state = getattr(self.optimizer, "_init_group", None)
        if make_state is None:
            return

        def init_group(*args, **kwargs):
            made = make_state(*args, **kwargs)
            for tensor in self.host_tensors():
                note(tensor)
            return made

        self.optimizer._init_group = init_group

    def run(self, steps, phase=lambda name: None):
        outputs = None
        # A mode for functions is off inside a function, and backward is one; but layers that run
        # again inside it ask as well.
        never = mock.patch.object(torch.autograd, "has_torch_function", lambda _: False)
        with Answers(1.0), never:
            for _ in range(steps):
                for _ in range(self.settings["accumulation"]):
                    phase("forward")
                    if self.settings["hold_outputs"]:
                        outputs = self.model(**self.batch)
                        loss = outputs.loss
                    else:
                        loss = self.model(**self.batch).loss
                    if self.settings["accumulation"] > 1:
                        loss = loss / self.settings["accumulation"]
                    phase("backward")
                    torch.autograd.backward(loss)
                phase("optimizer")
                if self.settings["clip"]:
                    torch.nn.utils.clip_grad_norm_(self.parameters, self.settings["clip"],
                                                   foreach=True)
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=self.settings["zero_grad"] == "none")
                phase("")
        return outputs

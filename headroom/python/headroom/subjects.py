"""A training step, or a forward pass, on a simulated card: model, batch, loss and optimizer."""
from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any, Callable, Iterable, Iterator, Optional, Union

import torch
from torch import nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from headroom import hints
from headroom.card import card_of
from headroom.errors import UsageError
from headroom.models import Model, add_once, eagerly, is_frozen, materialize, model_on
from headroom.moving import batch_on, lengths_on_the_host, tensors_of
from headroom.optimizers import Like, MakeOptimizer, optimizer_for

Loss = Callable[[nn.Module, Any], torch.Tensor]
Named = list[tuple[str, torch.Tensor]]
Step = tuple[Callable[[], Any], list[torch.Tensor]]  # and the states that its optimizer has already
# As the engine takes it: a step, parameters, buffers, inputs, states.
Subject = tuple[Callable[[], Any], Named, Named, list[torch.Tensor], list[torch.Tensor]]


def subject_of(step: Callable[[], Any], model: Optional[nn.Module], inputs: list[torch.Tensor],
               states: Optional[list[torch.Tensor]] = None) -> Subject:
    """The subject for a model on a card. A tensor that two modules share has both names: a head may also be an
    embedding."""
    if model is None:
        return step, [], [], inputs, states or []
    return (step, list(_plain(model.named_parameters(remove_duplicate=False))),
            list(_plain(model.named_buffers(remove_duplicate=False))), inputs, states or [])


def _plain(named: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    """A wrapper, such as a quantised weight, as the tensors that it is made of."""
    for name, tensor in named:
        if is_traceable_wrapper_subclass(tensor):
            yield from _plain((f"{name}.{part}", getattr(tensor, part)) for part in tensor.__tensor_flatten__()[0])
        else:
            yield name, tensor


def output_of(model: nn.Module, batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return model(**batch)
    if isinstance(batch, (list, tuple)) and not isinstance(batch, nn.utils.rnn.PackedSequence):
        return model(*batch)
    return model(batch)


def _is_made_of(result: torch.Tensor, part: torch.Tensor) -> bool:
    """True if autograd's graph leads from the result to the part."""
    seen: set[Any] = {None}
    ahead: list[Any] = [result.grad_fn]
    while part.grad_fn is not None and ahead:
        if (node := ahead.pop()) not in seen:
            if node is part.grad_fn:
                return True
            seen.add(node)
            ahead += [one for one, _ in node.next_functions]
    return False


def default_loss(model: nn.Module, batch: Any) -> torch.Tensor:
    """The model's own loss: an output of that name (as of transformers' models with labels), or a single
    number computed from its first floating output (`return logits, loss`); else the mean of that output."""
    output = output_of(model, batch)
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor):
        return loss
    floating = [one for one in tensors_of(output) if one.is_floating_point()]
    if floating:
        return next((one for one in floating[1:] if one.dim() == 0 and _is_made_of(one, floating[0])),
                    floating[0].mean())
    raise UsageError(f"[estimate] expected a model whose output has a loss or a floating tensor, "
                     f"received '{type(output).__name__}'; try loss=lambda model, batch: ...")


def passes(model: nn.Module, batch: Any, loss: Loss = default_loss) -> Callable[[], None]:
    """A forward pass without a graph."""
    run = output_of if loss is default_loss else loss

    def step() -> None:
        with torch.no_grad(), eagerly():
            run(model, batch)

    return step


@contextlib.contextmanager
def cast_to(precision: str) -> Iterator[None]:
    dtype = {"amp_fp16": torch.float16, "amp_bf16": torch.bfloat16}.get(precision)
    if dtype is None:
        yield
        return
    with torch.autocast("sim", dtype):
        yield


DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
OTHER_NAMES: dict[Any, str] = {name: short for short, dtype in DTYPES.items()
                                for name in (dtype, str(dtype), str(dtype).removeprefix("torch."))}
PRECISIONS = (*DTYPES, "amp_fp16", "amp_bf16")
MODES = ("train", "inference")
FROZEN = "The model is in eval() mode and trains nothing: these are the figures of a forward pass."
FUSED = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)
IN_SINGLE_STEPS = ("torch's own attention ran in single steps, as with "
                   "torch.backends.mha.set_fastpath_enabled(False).")


@dataclasses.dataclass(frozen=True)
class Training:
    """A model with the settings of its training, or of its inference if `mode` says so."""
    model: Model
    loss: Loss
    make_optimizer: Union[Like, MakeOptimizer]
    precision: Any  # one of PRECISIONS, or another name of it, which becomes that
    mode: Optional[str] = None  # None: a forward pass of a model that is frozen in eval()
    assume: Optional[float] = 0.5  # as for simulate()

    def __post_init__(self) -> None:
        if not callable(self.model):
            raise UsageError("[estimate] expected a model, or a function that makes one, received "
                             f"'{type(self.model).__name__}'")
        object.__setattr__(self, "precision", OTHER_NAMES.get(self.precision, self.precision))
        if self.precision is not None and self.precision not in PRECISIONS:
            raise UsageError(f"[estimate] expected a precision, one of {', '.join(PRECISIONS)}, "
                             f"received '{self.precision}'")
        if self.mode is not None and self.mode not in MODES:
            raise UsageError(f"[estimate] expected a mode, one of {', '.join(MODES)}, received "
                             f"'{self.mode}'")

    def subject(self, batch: Any, device: torch.device, notes: list[str]) -> Subject:
        """The subject on the device. Appends to the notes."""
        card_of(device)._card.assume_true = self.assume
        with hints.added(), lengths_on_the_host():
            model = model_on(self.model, device, notes)
            dtype = DTYPES.get(self.precision or "")
            if dtype is not None:
                model.to(dtype)
            inputs = batch_on(batch, device, dtype)
            materialize(model, lambda: self.loss(model, inputs))
            step, states = self.step(model, inputs, notes)
        return subject_of(step, model, list(tensors_of(inputs)), states)

    def step(self, model: nn.Module, inputs: Any, notes: list[str]) -> Step:
        """The step of a model and inputs on a card."""
        if self.mode is None and is_frozen(model):
            add_once(notes, FROZEN)
        elif self.mode != "inference":
            return self._training_step(model, inputs)
        if any(isinstance(one, FUSED) for one in model.modules()):
            add_once(notes, IN_SINGLE_STEPS)
        model.eval()
        forward = passes(model, inputs, self.loss)

        def step() -> None:
            with hints.added(), lengths_on_the_host(), cast_to(self.precision or ""):
                forward()

        return step, []

    def _training_step(self, model: nn.Module, inputs: Any) -> Step:
        optimizer = optimizer_for(model, self.make_optimizer)

        def step() -> None:
            optimizer.zero_grad()
            with hints.added(), eagerly(), lengths_on_the_host():
                with cast_to(self.precision or ""):
                    loss = self.loss(model, inputs)
                if not isinstance(loss, torch.Tensor):
                    raise UsageError("[estimate] expected a loss that is a tensor, received "
                                     f"'{type(loss).__name__}'")
                loss.backward()
                optimizer.step()

        return step, list(tensors_of(getattr(optimizer, "state", ())))  # Adagrad's is there before it steps

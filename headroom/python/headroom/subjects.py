"""A training step on a simulated card: a copy of the model without its data, batch, loss, optimizer."""
from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
from typing import Any, Callable, Iterable, Iterator, Optional, Union

import torch
from torch import nn

from headroom.errors import UsageError

Model = Union[nn.Module, Callable[[], nn.Module]]
Loss = Callable[[nn.Module, Any], torch.Tensor]
MakeOptimizer = Callable[[Iterable[nn.Parameter]], Any]
Optimizers = Union[None, str, torch.optim.Optimizer, MakeOptimizer]
Named = list[tuple[str, torch.Tensor]]
Subject = tuple[Callable[[], Any], Named, Named, list[torch.Tensor]]  # as the engine takes it

OPTIMIZERS: dict[str, MakeOptimizer] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01),
    "sgd-momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    "adafactor": torch.optim.Adafactor,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
}


def copy_on(model: nn.Module, device: torch.device) -> nn.Module:
    """The model on the device, without its data but for what a card knows of small buffers; the model
    itself is not touched. Parameters that are shared stay shared. Tensors that a module merely has
    stay on the CPU, if they are there."""
    memo: dict[int, Any] = {}
    elsewhere = (one for module in model.modules() for one in vars(module).values()
                 if isinstance(one, torch.Tensor) and one.device.type != "cpu")
    for tensor in [*model.parameters(), *model.buffers(), *elsewhere]:
        if isinstance(tensor, nn.Parameter):
            twin = torch.empty_like(tensor, device=device)
            twin = nn.Parameter(twin, requires_grad=tensor.requires_grad)
        else:
            twin = moved(tensor, device)
        memo[id(tensor)] = twin
    return copy.deepcopy(model, memo)


def model_on(model: Model, device: torch.device) -> nn.Module:
    if isinstance(model, nn.Module):
        return copy_on(model, device)
    with torch.device(device):
        made = model()
    if not isinstance(made, nn.Module):
        raise UsageError(f"[estimate] expected a model, or a function that makes one, received one "
                         f"that makes '{type(made).__name__}'")
    return made.to(device)


def moved(value: Any, device: torch.device) -> Any:
    """Tensors of a batch - alone, or in lists, tuples, dicts and dataclasses - on the device."""
    if isinstance(value, torch.Tensor):
        return torch.empty_like(value, device=device) if value.is_meta else value.to(device)
    if isinstance(value, dict):
        items = {key: moved(one, device) for key, one in value.items()}
        return items if type(value) is dict else type(value)(items)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(moved(one, device) for one in value))
    if isinstance(value, (list, tuple)):
        return type(value)(moved(one, device) for one in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **{field.name: moved(getattr(value, field.name), device)
                                             for field in dataclasses.fields(value) if field.init})
    return value


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from tensors_of(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors_of(one)


def batch_on(batch: Any, device: torch.device) -> Any:
    if callable(batch) and not isinstance(batch, torch.Tensor):
        with torch.device(device):
            batch = batch()
    return moved(batch, device)


def output_of(model: nn.Module, batch: Any) -> Any:
    if isinstance(batch, dict) or hasattr(batch, "keys"):
        return model(**batch)
    if isinstance(batch, (list, tuple)):
        return model(*batch)
    return model(batch)


def default_loss(model: nn.Module, batch: Any) -> torch.Tensor:
    """The loss that the model gives (transformers' models do, with labels), else the mean of its
    first floating output."""
    output = output_of(model, batch)
    loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor):
        return loss
    for tensor in tensors_of(output):
        if tensor.is_floating_point():
            return tensor.mean()
    raise UsageError(f"[estimate] expected a model whose output has a loss or a floating tensor, "
                     f"received '{type(output).__name__}'; try loss=lambda model, batch: ...")


def named_optimizer(name: str) -> MakeOptimizer:
    if name not in OPTIMIZERS:
        raise UsageError(f"[estimate] expected an optimizer, one of {', '.join(OPTIMIZERS)}, "
                         f"received '{name}'; try optimizer=lambda parameters: ...")
    return OPTIMIZERS[name]


def maker_of(optimizer: Optimizers) -> MakeOptimizer:
    if optimizer is None:
        return torch.optim.AdamW
    if isinstance(optimizer, str):
        return named_optimizer(optimizer)
    if isinstance(optimizer, torch.optim.Optimizer):  # another one of its kind
        known = inspect.signature(type(optimizer)).parameters
        return functools.partial(type(optimizer), **{
            key: value for key, value in optimizer.defaults.items() if key in known})
    if not callable(optimizer):
        raise UsageError("[estimate] expected an optimizer, its name or a function of the parameters, "
                         f"received '{type(optimizer).__name__}'")
    return optimizer


def optimizer_for(model: nn.Module, make: MakeOptimizer = torch.optim.AdamW) -> Any:
    parameters = [one for one in model.parameters() if one.requires_grad]
    if not parameters:
        raise UsageError("[estimate] expected a model with parameters that are trained, received one "
                         f"without ('{type(model).__name__}'); try headroom.dry_run(step) on a "
                         "simulated card, for what trains nothing")
    made = make(parameters)
    if not hasattr(made, "step") or not hasattr(made, "zero_grad"):
        raise UsageError("[estimate] expected a function that makes an optimizer, received one that "
                         f"makes '{type(made).__name__}'")
    return made


@contextlib.contextmanager
def cast_to(precision: str) -> Iterator[None]:
    dtype = {"amp_fp16": torch.float16, "amp_bf16": torch.bfloat16}.get(precision)
    if dtype is None:
        yield
        return
    with torch.autocast("sim", dtype):
        yield


DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
PRECISIONS = (*DTYPES, "amp_fp16", "amp_bf16")


@dataclasses.dataclass(frozen=True)
class Training:
    """What is trained, and how."""
    model: Model
    loss: Loss
    make_optimizer: MakeOptimizer
    precision: Optional[str]

    def __post_init__(self) -> None:
        if not callable(self.model):
            raise UsageError("[estimate] expected a model, or a function that makes one, received "
                             f"'{type(self.model).__name__}'")
        if self.precision is not None and self.precision not in PRECISIONS:
            raise UsageError(f"[estimate] expected a precision, one of {', '.join(PRECISIONS)}, "
                             f"received '{self.precision}'")

    def subject(self, batch: Any, device: torch.device) -> Subject:
        """On the device: a step, parameters, buffers and inputs."""
        model = model_on(self.model, device)
        if self.precision in DTYPES:
            model.to(DTYPES[self.precision])
        inputs = batch_on(batch, device)
        optimizer = optimizer_for(model, self.make_optimizer)

        def step() -> None:
            optimizer.zero_grad()
            with cast_to(self.precision or ""):
                loss = self.loss(model, inputs)
            if not isinstance(loss, torch.Tensor):
                raise UsageError("[estimate] expected a loss that is a tensor, received "
                                 f"'{type(loss).__name__}'")
            loss.backward()
            optimizer.step()

        return (step, list(model.named_parameters()), list(model.named_buffers()),
                list(tensors_of(inputs)))

"""The optimizer of an estimate: by name, like the user's own, or from a function of the parameters."""
from __future__ import annotations

import dataclasses
import inspect
from typing import Any, Callable, Iterable, Optional, Union

import torch
from torch import nn

from headroom.eight_bit import AdamW8bit
from headroom.errors import UsageError

MakeOptimizer = Callable[[Iterable[nn.Parameter]], Any]
Optimizers = Union[None, str, torch.optim.Optimizer, MakeOptimizer]


class NoOptimizer:
    """No optimizer: the step makes gradients only."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self.param_groups: list[dict[str, Any]] = [{"params": self.parameters}]
        self.state: dict[nn.Parameter, Any] = {}

    def zero_grad(self) -> None:
        for one in self.parameters:
            one.grad = None

    def step(self) -> None:
        """Does nothing."""


OPTIMIZERS: dict[str, MakeOptimizer] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adamw8bit": AdamW8bit,
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01),
    "sgd-momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    "adafactor": torch.optim.Adafactor,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
    "none": NoOptimizer,
}


def named_optimizer(name: str) -> MakeOptimizer:
    if name.lower() not in OPTIMIZERS:
        raise UsageError(f"[estimate] expected an optimizer, one of {', '.join(OPTIMIZERS)}, "
                         f"received '{name}'; try optimizer=lambda parameters: ...")
    return OPTIMIZERS[name.lower()]


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [one for one in model.parameters() if one.requires_grad]


@dataclasses.dataclass(frozen=True)
class Like:
    """Makes an optimizer like the user's own, over the same parameters of a copy of the model."""
    kind: type[torch.optim.Optimizer]
    options: dict[str, Any]
    groups: Optional[list[dict[str, Any]]]  # "params" by name; None: it was not made for this model
    elements: int

    def on(self, model: nn.Module) -> torch.optim.Optimizer:
        own = dict(model.named_parameters())
        if self.groups is None:
            return self._made(self._all_of(model))
        return self._made([{**group, "params": [own[name] for name in group["params"]]}
                           for group in self.groups])

    def _all_of(self, model: nn.Module) -> list[nn.Parameter]:
        parameters = trained(model)
        count = sum(one.numel() for one in parameters)
        if count != self.elements:
            raise UsageError(f"[estimate] expected an optimizer of the model's parameters, received one of "
                             f"another model ({self.elements:,} elements; {count:,} are trained "
                             "here); try optimizer=lambda parameters: ...")
        return parameters

    def _made(self, parameters: Any) -> torch.optim.Optimizer:
        try:
            return self.kind(parameters, **self.options)
        except TypeError as error:
            raise UsageError(f"[estimate] expected an optimizer of which another can be made, received "
                             f"'{self.kind.__name__}' ({error}); try optimizer=lambda parameters: "
                             f"{self.kind.__name__}(parameters, ...)") from error


def like(optimizer: torch.optim.Optimizer, model: Any) -> Like:
    names = {id(one): name.replace("_orig_mod.", "") for name, one in model.named_parameters()} \
        if isinstance(model, nn.Module) else {}
    its_own = [one for group in optimizer.param_groups for one in group["params"]]
    strangers = [one for one in its_own if id(one) not in names]
    if strangers and len(strangers) < len(its_own):
        raise UsageError(f"[estimate] expected an optimizer of the model's parameters, received one with "
                         f"{len(strangers)} others among them; try a model that has them all, or "
                         "optimizer=lambda parameters: ...")
    groups = None if strangers else [
        {**{key: value for key, value in group.items() if key != "param_names"},
         "params": [names[id(one)] for one in group["params"]]} for group in optimizer.param_groups]
    known = inspect.signature(type(optimizer)).parameters
    options = {key: value for key, value in optimizer.defaults.items() if key in known}
    return Like(type(optimizer), options, groups, sum(one.numel() for one in its_own))


def maker_of(optimizer: Optimizers, model: Any) -> Union[Like, MakeOptimizer]:
    if optimizer is None:
        return torch.optim.AdamW
    if isinstance(optimizer, str):
        return named_optimizer(optimizer)
    if isinstance(optimizer, torch.optim.Optimizer):
        return like(optimizer, model)
    if not callable(optimizer):
        raise UsageError("[estimate] expected an optimizer, its name or a function of the parameters, "
                         f"received '{type(optimizer).__name__}'")
    return optimizer


def optimizer_for(model: nn.Module, make: Union[Like, MakeOptimizer] = torch.optim.AdamW) -> Any:
    parameters = trained(model)
    if not parameters:
        raise UsageError("[estimate] expected a model with parameters that are trained, received one "
                         f"without ('{type(model).__name__}'); try headroom.estimate(..., mode=\"inference\"), or "
                         "--mode inference")
    made = make.on(model) if isinstance(make, Like) else make(parameters)
    if not hasattr(made, "step") or not hasattr(made, "zero_grad"):
        raise UsageError("[estimate] expected a function that makes an optimizer, received one that "
                         f"makes '{type(made).__name__}'")
    closure = inspect.signature(made.step).parameters.get("closure")
    if closure is not None and closure.default is closure.empty:
        raise UsageError("[estimate] expected an optimizer whose step() takes nothing, received "
                         f"'{type(made).__name__}', whose step(closure) runs the model as often as the "
                         "loss says; try headroom.dry_run(step) on a simulated card")
    return made

"""A model on a simulated card: a copy of the user's model without its data, or a function's result."""
from __future__ import annotations

import contextlib
import copy
import sys
from typing import Any, Callable, Iterator, Union

import torch
from torch import nn
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from headroom import bitsandbytes_kernels
from headroom.errors import UsageError
from headroom.moving import in_parts, moved

Model = Union[nn.Module, Callable[[], nn.Module]]


# ---- torch.compile

def _compiled(module: nn.Module) -> bool:
    """True for torch.compile's wrapper of a module."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    return dynamo is not None and isinstance(module, dynamo.OptimizedModule)


def without_wrappers(model: nn.Module) -> nn.Module:
    """The model with each wrapper of torch.compile replaced by its module."""
    while _compiled(model):
        model = model._orig_mod  # type: ignore[assignment]
    for module in list(model.modules()):
        for name, child in module._modules.items():
            if child is not None and _compiled(child):
                module._modules[name] = without_wrappers(child)
    return model


@contextlib.contextmanager
def eagerly() -> Iterator[None]:
    """Runs compiled code in eager mode: torch.compile's compiler makes kernels for real devices."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def check_model(model: nn.Module, notes: list[str]) -> None:
    """Adds a note about torch.compile; refuses modules of torch.jit."""
    if any(isinstance(one, torch.jit.ScriptModule) for one in model.modules()):
        raise UsageError("[estimate] expected a module in Python, received one that torch.jit has scripted or "
                         "traced; try the module that it was made from")
    if any(_compiled(one) or one._compiled_call_impl is not None for one in model.modules()):
        add_once(notes, "The model ran as it is written, without torch.compile: these are the figures of "
                 "eager mode.")


def _refuse_packed(model: nn.Module) -> None:
    """bitsandbytes' linear layers pack their weights as they are moved, so a copy without data would not be packed."""
    for one in model.modules():
        name = type(one).__name__
        if type(one).__module__.startswith("bitsandbytes.nn") and "Linear" in name:
            bits = "4bit" if "4" in name else "8bit"
            raise UsageError(
                f"[estimate] expected a model that can be copied without its data, received one with bitsandbytes' "
                f"{name}; try a function that makes the model, headroom rehearse for a whole script, or in a shell "
                f"`headroom estimate 7B --quantize {bits} --lora-rank 16`")


def add_once(notes: list[str], note: str) -> None:
    if note not in notes:
        notes.append(note)


# ---- Copies


def _twin(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    if isinstance(tensor, UninitializedTensorMixin):  # of a lazy module
        made: Any = type(tensor)
        return made(requires_grad=tensor.requires_grad, device=device, dtype=tensor.dtype)
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(_without_data(tensor.detach(), device), requires_grad=tensor.requires_grad)
    return moved(tensor, device)


def _without_data(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    if is_traceable_wrapper_subclass(tensor):
        return in_parts(tensor, lambda part: _without_data(part, device))
    return torch.empty_like(tensor, device=device)


def _held(model: nn.Module) -> Iterator[torch.Tensor]:
    """Tensors in attributes of modules that are neither parameters nor buffers."""
    for module in model.modules():
        for one in vars(module).values():
            if isinstance(one, torch.Tensor):
                yield one


def _has_hooks(parameter: nn.Parameter) -> bool:
    return bool(parameter._backward_hooks or parameter._post_accumulate_grad_hooks)


def copy_on(model: nn.Module, device: torch.device) -> nn.Module:
    """A copy of the model on the device, without data except small known buffers; the model itself does not
    change. Shared parameters stay shared. Tensors in other attributes stay on the CPU if they are there,
    and tensors of an earlier pass leave its graph. Wrappers of torch.compile are removed."""
    memo: dict[int, Any] = {id(one): _twin(one, device) for one in [*model.parameters(),
                                                                   *model.buffers()]}
    for tensor in _held(model):
        if tensor.device.type != "cpu":
            memo.setdefault(id(tensor), moved(tensor.detach(), device))
        elif not tensor.is_leaf:
            memo.setdefault(id(tensor), tensor.detach().clone())
    try:
        for one in reversed(list(model.modules())):  # those inside first
            if _compiled(one):
                memo[id(one)] = copy.deepcopy(one._orig_mod, memo)
        return copy.deepcopy(model, memo)
    except Exception as error:
        raise UsageError(
            "[estimate] expected a model that can be copied, received one that cannot "
            f"({type(error).__name__}: {error}); try a function that makes it, "
            f"lambda: {type(model).__name__}(...), in its place") from error


def model_on(model: Model, device: torch.device, notes: list[str]) -> nn.Module:
    if isinstance(model, nn.Module):
        check_model(model, notes)
        _refuse_packed(model)
        if any(map(_has_hooks, model.parameters())):
            add_once(notes, "The copy that ran lacks the hooks of the model's parameters; a function that "
                     "makes the model keeps them.")
        return copy_on(model, device)
    bitsandbytes_kernels.forget_tables()  # of the card before
    with torch.device(device):
        made = model()
    if not isinstance(made, nn.Module):
        raise UsageError(f"[estimate] expected a model, or a function that makes one, received one "
                         f"that makes '{type(made).__name__}'")
    check_model(made, notes)
    return without_wrappers(made).to(device)


def is_frozen(model: nn.Module) -> bool:
    """True for a model in eval() without a trained parameter."""
    return not model.training and not any(one.requires_grad for one in model.parameters())


def materialize(model: nn.Module, run: Callable[[], Any]) -> None:
    """Runs a pass if the model has lazy modules, which make their parameters in their first pass."""
    if any(isinstance(one, UninitializedTensorMixin) for one in [*model.parameters(), *model.buffers()]):
        with torch.no_grad():
            run()

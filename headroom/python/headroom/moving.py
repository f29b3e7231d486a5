"""Moves batches of any type to a simulated card."""
from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
from collections.abc import Mapping
from typing import Any, Callable, Iterator, Optional

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import is_traceable_wrapper_subclass


def moved(value: Any, device: torch.device, dtype: Optional[torch.dtype] = None) -> Any:
    """A copy of a batch on the device, floating tensors as `dtype` if given. A batch is a tensor, a list,
    tuple, mapping or dataclass of batches, or an object with `to(device)`. The original does not
    change."""
    if isinstance(value, torch.Tensor):
        return _moved_tensor(value, device, dtype)
    if isinstance(value, collections.UserDict):  # transformers' BatchEncoding is one
        twin = copy.copy(value)
        twin.data = {key: moved(one, device, dtype) for key, one in value.data.items()}
        return twin
    if isinstance(value, dict):
        twin = copy.copy(value)
        for key, one in value.items():
            twin[key] = moved(one, device, dtype)
        return twin
    if has_to(value):
        return _moved_by_itself(value, device, dtype)
    if isinstance(value, Mapping):
        return type(value)({key: moved(one, device, dtype)  # type: ignore[call-arg]
                            for key, one in value.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(moved(one, device, dtype) for one in value))
    if isinstance(value, (list, tuple)):
        return type(value)(moved(one, device, dtype) for one in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _moved_dataclass(value, device, dtype)
    return value


def _moved_tensor(value: torch.Tensor, device: torch.device,
                  dtype: Optional[torch.dtype]) -> torch.Tensor:
    if is_traceable_wrapper_subclass(value):
        return in_parts(value, lambda part: _moved_tensor(part, device, None))
    kind = dtype if dtype is not None and value.is_floating_point() else value.dtype
    if value.is_meta:
        return torch.empty_like(value, device=device, dtype=kind)
    return value.to(kind).to(device)


def in_parts(wrapper: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """The same kind of wrapper, such as a quantised weight of torchao, over changed tensors."""
    names, context = wrapper.__tensor_flatten__()
    parts = {name: change(getattr(wrapper, name)) for name in names}
    made: torch.Tensor = type(wrapper).__tensor_unflatten__(parts, context, wrapper.size(), wrapper.stride())
    return made


def has_to(value: Any) -> bool:
    """True for an object that moves itself, such as a batch of torch_geometric."""
    return callable(getattr(value, "to", None)) and not isinstance(value, (type, torch.Tensor, nn.Module))


class _Moving(TorchFunctionMode):
    """While active, `to()` of a tensor behaves like `moved`."""

    def __init__(self, device: torch.device, dtype: Optional[torch.dtype]) -> None:
        super().__init__()
        self.device, self.dtype = device, dtype

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), more: Any = None) -> Any:
        if function is torch.Tensor.to:
            return _moved_tensor(arguments[0], self.device, self.dtype)
        return function(*arguments, **(more or {}))


def _moved_by_itself(value: Any, device: torch.device, dtype: Optional[torch.dtype]) -> Any:
    """Moves a copy, because `to()` changes many such objects."""
    twin = copy.copy(value)
    with _Moving(device, dtype):
        there = twin.to(device)
    return twin if there is None else there


def _moved_dataclass(value: Any, device: torch.device, dtype: Optional[torch.dtype]) -> Any:
    twin = copy.copy(value)
    for field in dataclasses.fields(value):
        if hasattr(value, field.name):  # a frozen one, too
            object.__setattr__(twin, field.name, moved(getattr(value, field.name), device, dtype))
    return twin


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from tensors_of(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors_of(one)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_of(getattr(value, field.name, None))


class _OnHost(TorchFunctionMode):
    """Draws random whole numbers - lengths, labels - on the host: a shape-only card does not draw large
    ones, and a length of zero stops a model."""

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), more: Any = None) -> Any:
        more = more or {}
        draws = function in (torch.randint, torch.randperm) and more.get("generator") is None
        device = torch.device(more.get("device") or torch.get_default_device())
        if not draws or device.type != "sim" or more.get("out") is not None:
            return function(*arguments, **more)
        return function(*arguments, **{**more, "device": "cpu"}).to(device)


@contextlib.contextmanager
def _drawing_on_the_host() -> Iterator[None]:
    """Draws on the host, and restores the state of its random numbers afterwards."""
    with torch.random.fork_rng(devices=[]), _OnHost():
        yield


@contextlib.contextmanager
def lengths_on_the_host() -> Iterator[None]:
    """Packing a sequence takes its lengths from the host. A batch is moved to the card as a whole, so they are
    brought back there; a card knows the values of such small tensors."""
    pack = torch._VF._pack_padded_sequence  # type: ignore[attr-defined]

    def packed(x: torch.Tensor, lengths: torch.Tensor, *more: Any) -> Any:
        return pack(x, lengths.cpu(), *more)

    torch._VF._pack_padded_sequence = packed  # type: ignore[attr-defined]
    try:
        yield
    finally:
        del torch._VF._pack_padded_sequence  # type: ignore[attr-defined]


def makes_a_batch(batch: Any) -> bool:
    """True for a function. A batch of torch_geometric is callable, but not a function."""
    return callable(batch) and not isinstance(batch, torch.Tensor) and not has_to(batch)


def batch_on(batch: Any, device: torch.device, dtype: Optional[torch.dtype] = None) -> Any:
    """A batch on the device: the given one, or the result of a function, called with it as default device."""
    if makes_a_batch(batch):
        make: Callable[[], Any] = batch
        with torch.device(device), _drawing_on_the_host():
            batch = make()
    return moved(batch, device, dtype)

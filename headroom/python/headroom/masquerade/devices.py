"""Tensors, storages and generators of simulated cards show themselves as CUDA's, and functions that take a
device's name take CUDA's for the card. LibTorch itself is told by sim/as_cuda.h."""
from __future__ import annotations

import functools
from typing import Any, Callable, Optional

import torch
from torch.optim import optimizer as of_optimizers, swa_utils
from torch.utils import _foreach_utils

from headroom import card
from headroom.masquerade import answers
from headroom.patches import Patches

_of_tensor = torch._C.TensorBase.device.__get__  # type: ignore[attr-defined]
_of_storage = torch._C.StorageBase.device.__get__  # type: ignore[attr-defined]


def shown(device: torch.device) -> torch.device:
    """The device that a script is told."""
    return torch.device("cuda", device.index) if device.type == "sim" else device


def real(device: Any) -> Any:
    """The device behind a name or an object of CUDA's; anything else as it is."""
    if isinstance(device, _Device):
        return _Device("sim", device.index) if device.type == "cuda" else device
    if isinstance(device, str) and device.partition(":")[0] == "cuda":
        return "sim" + device[4:]
    return device


def install(patches: Patches) -> None:
    _tensors(patches)
    _storages(patches)
    _generators(patches)
    _devices(patches)
    _accelerator(patches)
    _mixed_precision(patches)
    patches.wrap(torch, "set_default_tensor_type", _default_type)
    patches.set(torch, "get_device_module", _device_module)
    patches.set(torch.version, "cuda", torch.version.cuda or "13.0")
    patches.set(torch.backends.cuda, "is_built", lambda: True)
    patches.set(card, "names", {"sim", "cuda"})


def take_the_cpus_optimizers(patches: Patches) -> None:
    """Optimizers and clipping go through the parameters one by one, as torch does on the CPU."""
    for module in (_foreach_utils, of_optimizers, swa_utils):
        patches.set(module, "_get_foreach_kernels_supported_devices", lambda: [])


def _tensors(patches: Patches) -> None:
    def device(self: torch.Tensor) -> torch.device:
        return shown(_of_tensor(self))

    def is_cuda(self: torch.Tensor) -> bool:
        return self.device.type == "cuda"

    def pinned(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, device=None: function(self)  # of the only accelerator, whatever is named

    def cuda(function: Callable[..., Any]) -> Callable[..., Any]:
        def moved(self: torch.Tensor, device: Any = None, *more: Any, **named: Any) -> torch.Tensor:
            if isinstance(device, int):  # a number names the accelerator, which LibTorch calls `sim`
                device = torch.device("cuda", device)
            return function(self, device, *more, **named)
        return moved

    def named(function: Callable[..., Any]) -> Callable[..., Any]:
        def of_type(self: torch.Tensor, dtype: Any = None, *more: Any, **named: Any) -> Any:
            if dtype is None:
                return function(self).replace("torch.sim.", "torch.cuda.")
            if isinstance(dtype, type(torch.FloatTensor)):  # torch.cuda.FloatTensor itself
                dtype = f"{dtype.__module__}.{dtype.__name__}"
            if isinstance(dtype, str) and dtype.startswith("torch.cuda."):
                return function(self.cuda(), "torch.sim." + dtype[11:], *more, **named)
            return function(self, dtype, *more, **named)
        return of_type

    def wrapping(function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrappers of tensors (DTensor) lie where LibTorch finds the wrapped ones."""
        def made(*arguments: Any, **named: Any) -> Any:
            if "device" in named:
                named["device"] = real(named["device"])
            return function(*arguments, **named)
        return made

    patches.set(torch.Tensor, "_make_wrapper_subclass", staticmethod(wrapping(torch.Tensor._make_wrapper_subclass)))
    patches.set(torch.Tensor, "device", property(device))
    patches.set(torch.Tensor, "is_cuda", property(is_cuda))
    patches.wrap(torch.Tensor, "cuda", cuda)
    patches.wrap(torch.Tensor, "pin_memory", pinned)
    patches.wrap(torch.Tensor, "is_pinned", pinned)
    patches.wrap(torch.Tensor, "type", named)
    # As an argument's default, Python's torch would take the first CUDA device that a driver has.
    patches.wrap(torch.Tensor, "__dlpack_device__", lambda function: lambda self: (2, self.device.index)
                 if self.device.type == "cuda" else function(self))


def _default_type(set_type: Callable[..., Any]) -> Callable[..., Any]:
    """torch.set_default_tensor_type(torch.cuda.FloatTensor)"""
    def set_default(kind: Any) -> None:
        name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
        if not name.startswith("torch.cuda."):
            set_type(kind)
            return
        set_type("torch." + name[11:])
        torch.set_default_device("cuda")
    return set_default


def _storages(patches: Patches) -> None:
    def made(cls: type, *arguments: Any, **named: Any) -> Any:
        if "device" in named:
            named["device"] = real(named["device"])
        return torch._C.StorageBase.__new__(cls, *arguments, **named)

    patches.set(torch.UntypedStorage, "__new__", staticmethod(made))
    patches.set(torch.UntypedStorage, "device", property(lambda self: shown(_of_storage(self))))


class _AnyGenerator(type(torch._C.Generator)):  # type: ignore[misc]
    """All generators are instances of torch.Generator, also those that C++ made."""

    def __instancecheck__(cls, one: Any) -> bool:
        return isinstance(one, torch._C.Generator)


class Generator(torch._C.Generator, metaclass=_AnyGenerator):
    def __new__(cls, device: Any = "cpu") -> Generator:
        return super().__new__(cls, device=_Device(real(device)))

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return shown(super().device)


def _generators(patches: Patches) -> None:
    patches.set(torch, "Generator", Generator)


class _AnyDevice(type):
    def __instancecheck__(cls, one: Any) -> bool:
        return isinstance(one, _Device)


_Device = torch.device


def _made_device(cls: type, *arguments: Any, **named: Any) -> torch.device:
    """A number alone names the accelerator, which LibTorch calls `sim`."""
    if len(arguments) == 1 and not named and isinstance(arguments[0], int):
        return _Device("cuda", arguments[0])
    return _Device(*arguments, **named)


def _devices(patches: Patches) -> None:
    patches.set(torch, "device", _AnyDevice("device", (), {"__new__": _made_device, "__module__": "torch",
                                                           "__qualname__": "device"}))


def _accelerator(patches: Patches) -> None:
    """torch.accelerator asks which device type this process has."""
    patches.set(torch._C, "_accelerator_getAccelerator", lambda: torch.device("cuda"))
    if hasattr(torch._C, "_get_accelerator"):
        patches.set(torch._C, "_get_accelerator", lambda *check: torch.device("cuda"))
    patches.set(torch.accelerator, "current_stream", answers.current_stream)
    patches.set(torch, "Event", answers.AnyEvent)


def _device_module(device: Optional[Any] = None) -> Any:
    kind = "cuda" if device is None else torch.device(device).type
    return getattr(torch, kind)


def _mixed_precision(patches: Patches) -> None:
    """Autocast keeps its settings by device type; those of CUDA are sim's."""
    def of_type(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def called(*arguments: Any, **named: Any) -> Any:
            if named:
                named = {key: real(value) for key, value in named.items()}
            return function(*map(real, arguments), **named)
        return called

    for name in ("set_autocast_enabled", "is_autocast_enabled", "set_autocast_dtype", "get_autocast_dtype"):
        function = getattr(torch, name)
        patches.set(torch, name, of_type(function))
        patches.set(torch._C, name, of_type(function))
    patches.set(torch._C, "_is_autocast_available", of_type(torch._C._is_autocast_available))
    # The old forms, without a device type, are CUDA's.
    enabled, set_enabled = torch.is_autocast_enabled, torch.set_autocast_enabled
    patches.set(torch, "is_autocast_enabled", lambda kind="cuda": enabled(kind))
    patches.set(torch, "set_autocast_enabled", lambda *given: set_enabled(*(("cuda",) * (len(given) < 2) + given)))
    patches.set(torch, "get_autocast_gpu_dtype", lambda: torch.get_autocast_dtype("cuda"))
    patches.set(torch, "set_autocast_gpu_dtype", lambda dtype: torch.set_autocast_dtype("cuda", dtype))

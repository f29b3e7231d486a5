"""bitsandbytes' operators on simulated cards: its own code for CUDA, without the kernels.

`bitsandbytes/backends/cuda/ops.py` allocates what its kernels read and write, chooses among them by the chip, and calls
them by address. Here that file runs once more, registered for simulated cards, over kernels that do nothing: the memory
is that of the version that is installed. In compute mode the values are those of bitsandbytes' operators for the CPU,
from copies on the host."""
from __future__ import annotations

import ctypes
import functools
import importlib.util
import mmap
import pathlib
import sys
from importlib.machinery import ModuleSpec
from typing import Any, Callable, Iterator, Optional

import torch
from torch.utils import _pytree as pytree

from headroom import _engine
from headroom.card import Card, card_of, lies_on_card
from headroom.imports import after_import
from headroom.patches import Patches

CUDA_OPS = pathlib.Path("backends", "cuda", "ops.py")  # in the package, from 0.46 on

_libraries: list[torch.library.Library] = []  # they live as long as their kernels
_paged: list[mmap.mmap] = []


def has_operators(package: ModuleSpec) -> bool:
    """False for a bitsandbytes that is too old, and for any other package."""
    folder = pathlib.Path(package.origin or "").parent
    return package.name == "bitsandbytes" and (folder / CUDA_OPS).exists()


def install() -> None:
    """Once a process, when `sim` is registered."""
    after_import("bitsandbytes.functional", _page_on_the_host)
    after_import("bitsandbytes", _register)


def _register(package: Any) -> None:
    if _libraries or not has_operators(package.__spec__):
        return
    _libraries.append(torch.library.Library("bitsandbytes", "IMPL"))
    path = pathlib.Path(package.__file__).parent / CUDA_OPS
    spec = importlib.util.spec_from_file_location("bitsandbytes.backends.cuda.ops", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)  # beside the one that CUDA uses
    patches = Patches()
    patches.set(package.cextension, "lib", _NoKernels())
    patches.set(package._ops, "register_kernel", _register_on_cards)
    patches.set(torch._C, "_cuda_getCurrentRawStream", lambda device: 0)
    patches.set(functools, "cache", lambda function: function)  # of choices by the chip: a process may see several
    try:
        spec.loader.exec_module(module)
    finally:
        patches.undo()
    vars(module).update(CUBLAS_Context=_NoContext, _gpu_dispatch_props=_chip)


def forget_tables() -> None:
    """At the end of a card: bitsandbytes keeps a table on the first device that it sees."""
    if "bitsandbytes.functional" in sys.modules:
        sys.modules["bitsandbytes.functional"].name2qmap.clear()


def _chip(index: int) -> tuple[int, int, int]:
    card = card_of(index)._card
    major, _, minor = card.capability.partition(".")
    return card.multiprocessors, int(major), int(minor)


# ---- Operators

def _register_on_cards(name: str, device_types: Any, function: Optional[Callable[..., Any]] = None) -> Any:
    """In place of torch.library.register_kernel."""
    if function is None:
        return functools.partial(_register_on_cards, name, device_types)
    if "cuda" in device_types:
        _libraries[0].impl(name.partition("::")[2], _kernel(name, function), "PrivateUse1")
    return function


def _kernel(name: str, on_cuda: Callable[..., Any]) -> Callable[..., Any]:
    plain, _, overload = name.partition("::")[2].partition(".")
    operators = getattr(torch.ops.bitsandbytes, plain)
    written = [place for place, one in enumerate(getattr(operators, overload or "default")._schema.arguments)
               if one.alias_info is not None and one.alias_info.is_write]

    def kernel(*given: Any, **more: Any) -> Any:
        arguments, more = pytree.tree_map_only(torch.Tensor, _without_class, (given, more))
        writes = [place for place in written if place < len(arguments) and arguments[place] is not None]
        if _card_among(arguments).mode == "compute":
            return _computed(operators.default, on_cuda, arguments, more, writes, overload == "out")
        made = on_cuda(*arguments, **more)
        for place in writes:
            if lies_on_card(arguments[place]):
                _engine.forget_values(arguments[place])
        return made

    return kernel


def _computed(operator: Any, on_cuda: Callable[..., Any], arguments: Any, more: Any, writes: list[int],
              gives_out: bool) -> Any:
    if not torch._C._dispatch_has_computed_kernel_for_dispatch_key(operator.name(), "CPU"):
        return on_cuda(*arguments, **more)  # made of operators that have one
    host, host_more = pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, (arguments, more))
    made = on_cuda(*arguments, **more)
    if gives_out:
        arguments[-1].copy_(operator(*host[:-1], **host_more))
        return made
    values = operator(*host, **host_more)
    written = zip([arguments[place] for place in writes], [host[place] for place in writes])
    for to, value in (*written, *zip(pytree.tree_leaves(made), pytree.tree_leaves(values))):
        if isinstance(to, torch.Tensor):
            to.copy_(value)
    return made


def _without_class(tensor: torch.Tensor) -> torch.Tensor:
    """Params4bit and its like have no address on a card."""
    return tensor if type(tensor) is torch.Tensor else tensor.detach().as_subclass(torch.Tensor)


def _card_among(arguments: Any) -> Card:
    return card_of(next(one for one in arguments if isinstance(one, torch.Tensor) and lies_on_card(one)).device)


class _NoKernels:
    """In place of the library of kernels. All return 0, which is success where that is asked."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: 0


class _NoContext:
    """Of cuBLASLt, whose products of int8 get no workspace (csrc/ops.cu)."""

    @classmethod
    def get_instance(cls) -> _NoContext:
        return cls()

    def get_context(self, device: torch.device) -> int:
        return 0


# ---- Layers

def shape_of(parameter: torch.Tensor) -> torch.Size:
    """Of a weight before it was packed; of any other as it is."""
    return torch.Size(getattr(getattr(parameter, "quant_state", None), "shape", parameter.shape))


def beside_the_weight(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Scales and tables, which belong to a weight and are neither parameters nor buffers."""
    packed = getattr(getattr(module, "weight", None), "quant_state", None)
    holders = (("", packed), ("nested_", getattr(packed, "state2", None)), ("", getattr(module, "state", None)))
    for prefix, holder in holders:
        for name in ("absmax", "code", "offset", "CB", "SCB"):
            if isinstance(one := getattr(holder, name, None), torch.Tensor):
                yield prefix + name, one


# ---- Paged memory, which a driver moves between host and card: here it is the host's

def _page_on_the_host(functional: Any) -> None:
    if not getattr(functional.lib, "compiled_with_cuda", False):  # a real card pages by itself
        functional.lib = _Paging(functional.lib)


class _Paging:
    """A native library, and the functions for paged memory that only CUDA's has."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def cget_managed_ptr(self, size: ctypes.c_size_t) -> int:
        """Zeros, which cost nothing until they are written."""
        _paged.append(mmap.mmap(-1, max(size.value, 1)))
        return ctypes.addressof(ctypes.c_char.from_buffer(_paged[-1]))

    def cprefetch(self, *arguments: Any) -> None:
        """No time passes."""

    def _fill(self, address: ctypes.c_void_p, unused: Any, value: Any, count: ctypes.c_int64) -> None:
        if value.value:  # memory is filled once, when it is fresh
            (type(value) * count.value).from_address(address.value or 0)[:] = [value.value] * count.value

    cfill_fp32 = cfill_uint8 = _fill

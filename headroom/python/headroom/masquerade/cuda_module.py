"""Puts the answers into `torch.cuda`, and refuses what would reach for a driver."""
from __future__ import annotations

import copy
import functools
import importlib
import pkgutil
import types
from typing import Any, Callable, Iterator

import torch

from headroom import torch_sim
from headroom.errors import UnavailableError
from headroom.masquerade import answers, between_cards, names
from headroom.patches import Patches


def modules() -> Iterator[tuple[str, types.ModuleType]]:
    """torch.cuda as "", and its submodules by their names."""
    yield "", torch.cuda
    for one in pkgutil.walk_packages(torch.cuda.__path__, "torch.cuda."):
        try:
            yield one.name.removeprefix("torch.cuda."), importlib.import_module(one.name)
        except ImportError:  # needs a package that is not there
            continue


def refusal(name: str, why: str) -> UnavailableError:
    return UnavailableError(f"[as_cuda] {name} cannot be answered: {why}")


def _refuse(name: str, why: str) -> Callable[..., Any]:
    def refuse(*arguments: Any, **more: Any) -> Any:
        raise refusal(name, why)

    return refuse


def _refused_class(name: str, why: str) -> type:
    """A class, for isinstance and as a base, whose making is refused."""
    return type(name.rpartition(".")[2], (), {"__new__": _refuse(name, why), "__module__": "torch.cuda"})


def _own(function: Any) -> Any:
    """A function of its own: torch.compile has rules by function, and refuses one under two names."""
    if not isinstance(function, types.FunctionType):
        return function

    @functools.wraps(function)
    def called(*arguments: Any, **more: Any) -> Any:
        return function(*arguments, **more)

    return called


def _ignore(value: Any) -> Callable[..., Any]:
    return lambda *arguments, **more: copy.copy(value)


def public_names(module: types.ModuleType) -> list[str]:
    named = getattr(module, "__all__", None)
    if named is not None:
        return list(named)
    return [name for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__]


def _replacement(name: str, before: Any) -> Any:
    """What takes the place of a name; `before` itself where it stays."""
    line, last = names.line_of(name), name.rpartition(".")[2]
    if line == "answered":
        found = [getattr(module, one) for module in (answers, torch_sim) for one in (name.replace(".", "_"), last)
                 if hasattr(module, one)]
        return _own(found[0])
    key = name if name in names.IGNORED or name in names.REFUSED else name.rpartition(".")[0] + ".*"
    if line == "ignored":
        return _ignore(names.IGNORED[key][0])
    if line == "refused":
        shown, why = f"torch.cuda.{name}", names.REFUSED[key]
        return _refused_class(shown, why) if isinstance(before, type) else _refuse(shown, why)
    return before


def install(patches: Patches) -> None:
    replaced: dict[int, Any] = {}
    known = list(modules())
    for path, module in known:
        own = public_names(module)
        special = [name for name in vars(module) if name.startswith("_") and (
            name in names.ANSWERED if not path else f"{path}.{name}" in names.IGNORED)]
        special += [name for name in vars(module) if path and f"{path}.{name}" in names.ANSWERED]
        for name in [*own, *special]:
            before = vars(module).get(name)
            if before is None or isinstance(before, types.ModuleType):
                continue
            # A submodule's function that torch.cuda has, too, is torch.cuda's.
            full = name if not path or vars(torch.cuda).get(name) is before else f"{path}.{name}"
            after = replaced.get(id(before), _replacement(full, before))
            if hasattr(before, "__wrapped__") and isinstance(after, types.FunctionType):
                after.__wrapped__ = before.__wrapped__  # torch._dynamo has rules for it
            if after is not before:
                replaced[id(before)] = after
                patches.set(module, name, after)
    for name in ("is_available", "get_device_properties", "_get_device_properties"):
        if hasattr(torch.cuda, name) and name.startswith("_"):
            patches.set(torch.cuda, name, getattr(answers, name[1:]))
    patches.set(torch.cuda, "_initialized", True)
    _refuse_the_driver(patches)
    for name, function in between_cards.FUNCTIONS.items():
        patches.set(torch._C, name, function)


# Called by torch itself where CUDA was compiled in, whether it is used or not.
_HARMLESS = {"_cuda_isInBadFork": False, "_cuda_getDeviceCount": None, "_cuda_getCompiledVersion": 13000,
             "_cuda_clearCublasWorkspaces": None, "_cuda_isCurrentStreamCapturing": False,
             "_cuda_isHistoryEnabled": False, "_cuda_hasPrimaryContext": True, "_cuda_init": None,
             "_cuda_get_cudnn_benchmark_limit": 10, "_cuda_set_cudnn_benchmark_limit": None,
             "_cuda_get_conv_benchmark_empty_cache": False, "_cuda_lock_mutex": None,
             "_cuda_unlock_mutex": None, "_cuda_get_sync_debug_mode": 0, "_cuda_emptyCache": None,
             "_cuda_ipc_collect": None, "_cuda_attach_out_of_memory_observer": None,
             "_cuda_sleep": None, "_cuda_cudaCachingAllocator_enable": None, "_cuda_record_memory_history": None}


def _refuse_the_driver(patches: Patches) -> None:
    """torch's C functions behind torch.cuda: no error of a driver may reach a script."""
    answered: dict[str, Callable[..., Any]] = {
        "_cuda_getDeviceCount": torch_sim.device_count, "_cuda_getDevice": torch_sim.current_device,
        "_cuda_setDevice": torch_sim.set_device, "_cuda_synchronize": torch_sim.synchronize,
        "_cuda_exchangeDevice": torch_sim.exchange_device,
        "_cuda_maybeExchangeDevice": torch_sim.exchange_device,
        "_cuda_memoryStats": answers.memory_stats_as_nested_dict,
        "_cuda_emptyCache": torch_sim.empty_cache,
        "_cuda_getCurrentRawStream": lambda device: torch_sim.current_stream(device).stream_id}
    for name in dir(torch._C):
        if not name.startswith("_cuda_") or isinstance(getattr(torch._C, name), type):
            continue
        if name in answered:
            value = _own(answered[name])
        elif name in _HARMLESS:
            value = _ignore(_HARMLESS[name])
        else:
            value = _refuse(f"torch._C.{name}", "it reaches for CUDA's driver, and a simulated card has none")
        patches.set(torch._C, name, value)
    for name in ("_cuda_isInBadFork", "_cuda_getDeviceCount"):
        if not hasattr(torch._C, name):
            patches.set(torch._C, name, answered.get(name) or _ignore(_HARMLESS[name]))

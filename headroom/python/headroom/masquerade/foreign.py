"""Packages with kernels of their own for CUDA, which a simulated card cannot run.

Those that are installed can be imported, and what they have refuses on use, in a sentence. FlashAttention is stood
in for by torch's own flash attention, which keeps and returns tensors of the same sizes; stand_ins.py has a few
others, and bitsandbytes_kernels.py runs bitsandbytes itself. Where a program only looks for a package, most count as
not installed: it has a way without them."""
from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from typing import Any, Callable, Optional

import torch
from torch.utils import _pytree as pytree

from headroom import bitsandbytes_kernels
from headroom.errors import UnavailableError
from headroom.imports import after_import
from headroom.masquerade import flash_attention, refusing, stand_ins
from headroom.patches import Patches

REFUSED = {
    "apex": "torch.amp, torch.optim and torch.nn have its parts",
    "bitsandbytes": "0.46 or later, whose operators run here",
    "deepspeed": "headroom estimate --zero for its stages, or FSDP",
    "flash_attn": "attn_implementation=\"sdpa\"",
    "flash_attn_3": "attn_implementation=\"sdpa\"",
    "flash_attn_interface": "attn_implementation=\"sdpa\"",
    "transformer_engine": "the script in bfloat16",
    "xformers": "torch.nn.functional.scaled_dot_product_attention",
}

FOUND = ("bitsandbytes", "flash_attn")  # also where a program looks

_said: set[str] = set()


def say_once(text: str) -> None:
    """A line on standard error, the first time."""
    if text not in _said:
        _said.add(text)
        print(f"headroom: {text}", file=sys.stderr)


class _Loader(importlib.abc.Loader):
    def __init__(self, run: Callable[[types.ModuleType], None]) -> None:
        self._run = run

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        self._run(module)


class _StandIns(importlib.abc.MetaPathFinder):
    """Of packages that are installed; one that is not is missing as ever."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        package = name.partition(".")[0]
        installed = importlib.machinery.PathFinder.find_spec(package) if package in REFUSED else None
        if installed is None or bitsandbytes_kernels.has_operators(installed):
            return None

        def fill(module: types.ModuleType) -> None:
            refusing.fill(module, REFUSED[package], stand_ins.KNOWN)
            if name in flash_attention.MODULES:
                flash_attention.fill(module)

        return importlib.machinery.ModuleSpec(name, _Loader(fill), is_package=True)


def install(patches: Patches) -> None:
    patches.set(torch, "compile", _run_eagerly)
    # A simulated card takes the weights of recurrent networks as they are (sim/dispatch/rnn_route.cpp).
    patches.set(torch.nn.RNNBase, "flatten_parameters", lambda self: None)
    finder = _StandIns()
    patches.set(sys, "meta_path", [finder, *sys.meta_path])
    find = importlib.util.find_spec

    def find_spec(name: str, package: Optional[str] = None) -> Any:
        looked_for = name.partition(".")[0]
        hidden = looked_for in REFUSED and looked_for not in FOUND and looked_for not in sys.modules
        return None if hidden else find(name, package)

    patches.set(importlib.util, "find_spec", find_spec)
    after_import("bitsandbytes.cuda_specs", lambda module: None if patches.undone else
                 patches.set(module, "get_cuda_specs", lambda: None))  # its library for CUDA needs a driver
    after_import("torchvision", _in_float32)
    after_import("torch.nn.attention.flex_attention", lambda module: None if patches.undone else
                 patches.set(module, "flex_attention", _refuse_flex_attention))
    patches.set(torch.UntypedStorage, "_share_cuda_", _refuse_to_share)
    patches.wrap(torch.profiler.profiler._KinetoProfile, "__init__", _of_the_cpu_alone)
    after_import("triton.runtime.jit", lambda module: None if patches.undone else
                 patches.set(module.JITFunction, "run", _refuse_kernel))
    after_import("triton.runtime.autotuner", lambda module: None if patches.undone else
                 patches.set(module.Autotuner, "run", _refuse_kernel))
    after_import("kernels", lambda module: None if patches.undone else _refuse_kernels_of_the_hub(patches, module))


def _refuse_kernels_of_the_hub(patches: Patches, kernels: Any) -> None:
    for name in ("get_kernel", "get_local_kernel", "get_locked_kernel", "load_kernel"):
        if hasattr(kernels, name):
            patches.set(kernels, name, refusing.refused(f"kernels.{name}", "the same in operators of torch"))


def _refuse_kernel(self: Any, *arguments: Any, **more: Any) -> Any:
    name = getattr(self, "__name__", None) or getattr(getattr(self, "base_fn", None), "__name__", "a kernel")
    raise UnavailableError(f"[as_cuda] the Triton kernel '{name}' cannot run on a simulated card; try the same in "
                           "operators of torch")


def _refuse_to_share(*arguments: Any, **more: Any) -> Any:
    raise UnavailableError("[as_cuda] tensors of a simulated card cannot be given to another process; try one process, "
                           "or a model that each process moves to its card")


def _refuse_flex_attention(*arguments: Any, **more: Any) -> Any:
    raise UnavailableError("[as_cuda] flex_attention is a kernel that torch.compile makes for the card; try "
                           "torch.nn.functional.scaled_dot_product_attention with a mask")


def _of_the_cpu_alone(init: Callable[..., Any]) -> Callable[..., Any]:
    """torch.profiler, without the activity of a driver."""
    def without_cuda(self: Any, *, activities: Any = None, **more: Any) -> None:
        cpu = torch.profiler.ProfilerActivity.CPU
        init(self, activities=[one for one in activities or [] if one == cpu] or [cpu], **more)
    return without_cuda


def _in_float32(torchvision: Any) -> None:
    """Autocast for its operators, which torchvision registers for CUDA: computed in float32, with results in the
    type of the first tensor."""
    if _libraries:
        return
    library = torch.library.Library("torchvision", "IMPL")  # lives as long as its kernels
    _libraries.append(library)
    for name in {name for name in torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA")
                 if name.startswith("torchvision::")}:
        library.impl(name.partition("::")[2], _float32_kernel(name), "AutocastPrivateUse1")


_libraries: list[torch.library.Library] = []
_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)


def _float32_kernel(name: str) -> Callable[..., Any]:
    def kernel(*arguments: Any) -> Any:
        tensors = [one for one in arguments if isinstance(one, torch.Tensor) and one.is_floating_point()]
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            made = operator(*(one.float() if any(one is tensor for tensor in tensors) else one for one in arguments))
            like = tensors[0].dtype
            return pytree.tree_map(lambda one: one.to(like) if one.is_floating_point() else one, made)

    operator = getattr(torch.ops.torchvision, name.partition("::")[2])
    return kernel


def _run_eagerly(model: Optional[Callable[..., Any]] = None, **options: Any) -> Any:
    """torch.compile: the module itself, whose memory in eager mode is the figure."""
    if not sys._getframe(1).f_globals.get("__name__", "").startswith("bitsandbytes."):  # of other devices' operators
        say_once("torch.compile is left out; the figures are those of eager mode, which are rarely smaller")
    if model is None:
        return lambda function: _run_eagerly(function, **options)
    if isinstance(model, torch.nn.Module):
        vars(model)["_orig_mod"] = model  # programs look there for the module that was compiled
    return model

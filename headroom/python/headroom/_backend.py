"""Registers `sim` with Python's torch: the name, `torch.sim`, methods such as `tensor.sim()`."""
from __future__ import annotations

import os
from typing import Any

import torch

from headroom import _core, _printing, _storages, bitsandbytes_kernels, torch_sim
from headroom.card import cards, lies_on_card
from headroom.errors import UnavailableError

def check_torch() -> None:
    """LibTorch's C++ interface changes with every minor version, and the engine was built with one."""
    wanted = _core.wanted_torch
    if not torch.__version__.startswith(f"{wanted}."):
        raise UnavailableError(
            f"[headroom] expected PyTorch {wanted}, which this headroom was built for, received "
            f"{torch.__version__}; try pip install torch~={wanted}.0, or build headroom for your torch: "
            "pip install --force-reinstall --no-deps . in its checkout")


_registered = _forked = False


def is_fork() -> bool:
    """True in a fork of a process in which `sim` was registered: if the parent had run backward
    passes, torch refuses those of the fork."""
    return _forked


def is_registered() -> bool:
    """True once `sim` is registered; torch then takes it for this process's accelerator."""
    return _registered


def _note_fork() -> None:
    global _forked
    _forked = True


def register() -> None:
    """Once a process, after the C++ side has registered the device type with LibTorch."""
    global _registered
    if _registered:
        return
    torch.utils.rename_privateuse1_backend("sim")
    # At its end torch tells autograd's threads to end, too. Up to Python 3.11 a thread that then asks for the
    # interpreter's lock aborts the process. With a wait of 0 s torch leaves them alone.
    os.environ.setdefault("TORCH_AUTOGRAD_SHUTDOWN_WAIT_LIMIT", "0")
    torch._register_device_module("sim", torch_sim)
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=False)
    _choose_foreach_as_the_cpu_does()
    _take_the_long_way_in_evaluation()
    _refuse_inductor()
    _storages.bend()
    _printing.say_what_is_unknown()
    _join_ranks()
    bitsandbytes_kernels.install()
    os.register_at_fork(after_in_child=_note_fork)
    _registered = True


def _choose_foreach_as_the_cpu_does() -> None:
    """By default optimizers take the foreach form on cards and a loop on the CPU. With `cpu` rules
    they take the loop on a card, too."""
    import torch.optim.optimizer as of_optimizers

    supported = of_optimizers._get_foreach_kernels_supported_devices

    def devices() -> list[str]:
        as_cpu = any(card.rules == "cpu" for card in cards())
        return [one for one in supported() if not (as_cpu and one == "sim")]

    of_optimizers._get_foreach_kernels_supported_devices = devices


def _take_the_long_way_in_evaluation() -> None:
    """In evaluation attention and TransformerEncoder have a fast path through one fused operator and nested
    tensors, which is not simulated. While simulated cards exist, they run single operators, as in training."""
    enabled = torch.backends.mha.get_fastpath_enabled
    torch.backends.mha.get_fastpath_enabled = lambda: enabled() and not cards()


def _refuse_inductor() -> None:
    """torch.compile's own compiler makes kernels for real devices. Its arguments show the device only
    when it is called. The other backends ("eager", "aot_eager") work."""
    compiler = torch._TorchCompileInductorWrapper
    compile_graph = compiler.__call__

    def __call__(self: Any, model: Any, inputs: Any) -> Any:
        if any(isinstance(one, torch.Tensor) and lies_on_card(one) for one in inputs):
            raise UnavailableError(
                "[torch.compile] expected tensors of a real device, received some of a simulated one, "
                "for which inductor has no kernels; try the module without torch.compile - the figures "
                "are then those of eager mode - or backend=\"aot_eager\"")
        return compile_graph(self, model, inputs)

    compiler.__call__ = __call__  # type: ignore[method-assign]


def _join_ranks() -> None:
    """Registers `sim` and `pretend` as backends of torch.distributed (ranks.py)."""
    import torch.distributed

    if torch.distributed.is_available():
        from headroom import ranks
        ranks.register()

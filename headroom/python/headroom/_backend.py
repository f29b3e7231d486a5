"""Makes `sim` known to Python's torch: the name, `torch.sim`, methods such as `tensor.sim()`."""
from __future__ import annotations

import os
from typing import Any

import torch

from headroom import _printing, _storages, torch_sim
from headroom.card import cards
from headroom.errors import UnavailableError

WANTED = "2.11."


def check_torch() -> None:
    if not torch.__version__.startswith(WANTED):
        raise UnavailableError(f"[headroom] expected PyTorch {WANTED}x, received {torch.__version__}; "
                               "try pip install torch==2.11.0")


_registered = _forked = False


def is_fork() -> bool:
    """Whether this process is the fork of one in which `sim` was known: torch refuses its backward
    passes, if there were any in the first one."""
    return _forked


def is_registered() -> bool:
    """Whether torch knows `sim` here, and takes it for this process's accelerator from then on."""
    return _registered


def _note_fork() -> None:
    global _forked
    _forked = True


def register() -> None:
    """Once a process, after the C++ side has taken LibTorch's place for an own device type."""
    global _registered
    if _registered:
        return
    torch.utils.rename_privateuse1_backend("sim")
    torch._register_device_module("sim", torch_sim)
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=False)
    _choose_foreach_as_the_cpu_does()
    _take_the_long_way_in_evaluation()
    _refuse_inductor()
    _storages.bend()
    _printing.say_what_is_unknown()
    _join_ranks()
    os.register_at_fork(after_in_child=_note_fork)
    _registered = True


def _choose_foreach_as_the_cpu_does() -> None:
    """Optimizers take the foreach form by default on cards, and a loop on the CPU. Under `cpu` rules
    a card does as the CPU."""
    import torch.optim.optimizer as of_optimizers

    supported = of_optimizers._get_foreach_kernels_supported_devices

    def devices() -> list[str]:
        as_cpu = any(card.rules == "cpu" for card in cards())
        return [one for one in supported() if not (as_cpu and one == "sim")]

    of_optimizers._get_foreach_kernels_supported_devices = devices


def _take_the_long_way_in_evaluation() -> None:
    """Attention and TransformerEncoder have a short cut in evaluation, through one fused operator and nested
    tensors, which is not simulated: while a card is, they take single steps, as in training."""
    enabled = torch.backends.mha.get_fastpath_enabled
    torch.backends.mha.get_fastpath_enabled = lambda: enabled() and not cards()


def _refuse_inductor() -> None:
    """torch.compile's own compiler makes kernels for real devices. What it is given is known when it
    is called; its other backends ("eager", "aot_eager") run what they are given, and may."""
    compiler = torch._TorchCompileInductorWrapper
    compile_graph = compiler.__call__

    def __call__(self: Any, model: Any, inputs: Any) -> Any:
        if any(isinstance(one, torch.Tensor) and one.device.type == "sim" for one in inputs):
            raise UnavailableError(
                "[torch.compile] expected tensors of a real device, received some of a simulated one, "
                "for which inductor has no kernels; try the module without torch.compile - the figures "
                "are then those of eager mode - or backend=\"aot_eager\"")
        return compile_graph(self, model, inputs)

    compiler.__call__ = __call__  # type: ignore[method-assign]


def _join_ranks() -> None:
    """`sim` and `pretend` are backends of torch.distributed (ranks.py)."""
    import torch.distributed

    if torch.distributed.is_available():
        from headroom import ranks
        ranks.register()

"""Makes `sim` known to Python's torch: the name, `torch.sim`, methods such as `tensor.sim()`."""
from __future__ import annotations

from typing import Any

import torch

from headroom.errors import UnavailableError

WANTED = "2.11."


def check_torch() -> None:
    if not torch.__version__.startswith(WANTED):
        raise UnavailableError(f"[headroom] expected PyTorch {WANTED}x, received {torch.__version__}; "
                               "try pip install torch==2.11.0")


_registered = False


def register() -> None:
    """Once a process, after the C++ side has taken LibTorch's place for an own device type."""
    global _registered
    if _registered:
        return
    from headroom import torch_sim

    torch.utils.rename_privateuse1_backend("sim")
    torch._register_device_module("sim", torch_sim)
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=False)
    _choose_foreach_as_the_cpu_does()
    _keep_parameters_when_modules_move()
    _copy_storages_as_tensors()
    _refuse_inductor()
    _registered = True


def _choose_foreach_as_the_cpu_does() -> None:
    """Optimizers take the foreach form by default on cards, and a loop on the CPU. Under `cpu` rules
    a card does as the CPU."""
    import torch.optim.optimizer as of_optimizers
    from headroom import simulation

    supported = of_optimizers._get_foreach_kernels_supported_devices

    def devices() -> list[str]:
        box = simulation.current_box()
        as_cpu = box is not None and any(card.rules == "cpu" for card in box)
        return [one for one in supported() if not (as_cpu and one == "sim")]

    of_optimizers._get_foreach_kernels_supported_devices = devices


def _keep_parameters_when_modules_move() -> None:
    """module.to("cuda") moves its parameters where they are: what is shared stays shared, and an
    optimizer that was made before still knows them. For a device type of one's own torch would make
    new ones; while something is simulated it swaps them instead."""
    from headroom import simulation

    apply = torch.nn.Module._apply

    def _apply(self: torch.nn.Module, *arguments: Any, **more: Any) -> torch.nn.Module:
        before = torch.__future__.get_swap_module_params_on_conversion()
        if before or simulation.current_box() is None:
            return apply(self, *arguments, **more)
        torch.__future__.set_swap_module_params_on_conversion(True)
        try:
            return apply(self, *arguments, **more)
        finally:
            torch.__future__.set_swap_module_params_on_conversion(False)

    torch.nn.Module._apply = _apply  # type: ignore[method-assign]


def _copy_storages_as_tensors() -> None:
    """copy.deepcopy of a tensor that is no parameter - a buffer - clones its storage, and torch clones
    one byte by byte, which those without data have not."""
    clone = torch.UntypedStorage.clone

    def clone_on_card(self: torch.UntypedStorage) -> torch.UntypedStorage:
        if self.device.type != "sim":
            return clone(self)
        as_bytes = torch.empty(0, dtype=torch.uint8, device=self.device).set_(self)
        return as_bytes.clone().untyped_storage()

    torch.UntypedStorage.clone = clone_on_card  # type: ignore[method-assign]


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

    compiler.__call__ = __call__

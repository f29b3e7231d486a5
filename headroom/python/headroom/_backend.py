"""Makes `sim` known to Python's torch: the name, `torch.sim`, methods such as `tensor.sim()`."""
from __future__ import annotations

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
    _registered = True

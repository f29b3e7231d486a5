"""Counterparts of modules inside `torch.cuda`, and the reasons why others have none."""
from __future__ import annotations

import contextlib
import functools
from typing import Any, Iterator

import torch


class amp:
    """As torch.cuda.amp: torch.amp's own, for cards."""
    autocast = functools.partial(torch.amp.autocast, "sim")
    GradScaler = functools.partial(torch.amp.GradScaler, "sim")
    custom_fwd = staticmethod(functools.partial(torch.amp.custom_fwd, device_type="sim"))
    custom_bwd = staticmethod(functools.partial(torch.amp.custom_bwd, device_type="sim"))


class nvtx:
    """As torch.cuda.nvtx without a profiler."""

    @staticmethod
    def range_push(message: str) -> int:
        return 0

    @staticmethod
    def range_pop() -> int:
        return 0

    @staticmethod
    def mark(message: str) -> None:
        """Does nothing."""

    @staticmethod
    @contextlib.contextmanager
    def range(message: str, *arguments: Any, **more: Any) -> Iterator[None]:
        yield


_REASONS = {
    "a simulated card captures no graphs; try the step as it is":
        ("CUDAGraph", "graph", "graphs", "make_graphed_callables", "graph_pool_handle"),
    "a simulated card has one pool of memory; try the step without it":
        ("MemPool", "use_mem_pool", "CUDAPluggableAllocator", "change_current_allocator"),
    "collectives of cards are torch.distributed's; try init_process_group(\"sim\") or "
    "headroom.pretend_ranks(8)": ("nccl",),
    "histories are Headroom's; try with headroom.record_history(\"memory.pickle\")":
        ("memory_snapshot", "_snapshot", "_record_memory_history", "_dump_snapshot"),
    "a simulated card has no sensors": ("temperature", "power_draw", "clock_rate"),
}
_WHY = {name: reason for reason, names in _REASONS.items() for name in names}


def why_not(name: str) -> str:
    """The message for a name that torch.sim does not have."""
    if name in _WHY:
        return f"torch.sim has no {name}: {_WHY[name]}"
    if name.endswith(("Tensor", "Storage")) and hasattr(torch.cuda, name):
        return f"torch.sim has no {name}; try torch.empty(..., dtype=..., device=\"sim\")"
    if hasattr(torch.cuda, name):
        return f"torch.sim has no {name}: this part of torch.cuda is not simulated"
    return f"module 'torch.sim' has no attribute '{name}'"

"""The same functions under names and keywords that programs already use."""
from __future__ import annotations

import functools
from typing import Any, Callable, Optional, Union

from headroom.machine import gpus
from headroom.memory import (Device, GpuMemoryScope, clear_gpu_memory, get_gpu_memory_stats,
                             log_gpu_memory_stats)
from headroom.recovery import OomHandler, adaptive_batch_training

OOMHandler = OomHandler

GB = 1e9  # decimal, as these programs count


class GPUMemoryContext(GpuMemoryScope):
    """A GpuMemoryScope that prints its line at the end.

        with GPUMemoryContext("forward"):
            ...
    """

    def __init__(self, name: str = "", device: Device = None, **more: Any) -> None:
        super().__init__(name, device, **{"sink": print, **more})


def print_gpu_memory(prefix: str = "", device: Device = None) -> None:
    """The line of log_gpu_memory_stats."""
    log_gpu_memory_stats(prefix, device)


def get_memory_snapshot(device: Device = None) -> dict[str, Union[str, float, None]]:
    """The device's memory now, in decimal GB. Without a GPU "device" is None and the figures of tensors are 0."""
    stats = get_gpu_memory_stats(device)
    return {
        "device": None if stats.device is None else str(stats.device),
        "allocated_gb": stats.allocated / GB,
        "reserved_gb": stats.reserved / GB,
        "max_allocated_gb": stats.max_allocated / GB,
        "max_reserved_gb": stats.max_reserved / GB,
        "free_gb": None if stats.free is None else stats.free / GB,
        "total_gb": None if stats.total is None else stats.total / GB,
    }


def get_gpu_info() -> list[dict[str, Any]]:
    """One dict a card of this machine, in decimal GB; utilization from 0 to 1."""
    return [{
        "index": card.index,
        "name": card.name,
        "uuid": card.uuid,
        "total_gb": None if card.total is None else card.total / GB,
        "used_gb": None if card.used is None else card.used / GB,
        "free_gb": None if card.free is None else card.free / GB,
        "utilization": card.utilization,
        "temperature_c": card.temperature_c,
    } for card in gpus()]


def clear_gpu_cache() -> None:
    """Gives unused memory back, as clear_gpu_memory() does."""
    clear_gpu_memory()


def find_executable_batch_size(function: Optional[Callable[..., Any]] = None,
                               starting_batch_size: int = 128) -> Any:
    """accelerate's decorator: the function gets the batch size as its first argument, and runs again from its start
    with half of it after an out-of-memory, down to 1."""
    if function is None:
        return functools.partial(find_executable_batch_size, starting_batch_size=starting_batch_size)
    wrapped = function

    @functools.wraps(wrapped)
    def called(*arguments: Any, **more: Any) -> Any:
        return adaptive_batch_training(lambda size: wrapped(size, *arguments, **more), starting_batch_size, 1)

    return called

"""How much memory this process's tensors take, the same for cuda, sim and cpu."""
from __future__ import annotations

import dataclasses
import os
from types import TracebackType
from typing import Any, Callable, Optional, Union

import torch

from headroom import _backend, _engine
from headroom.card import check_there
from headroom.errors import UsageError, WriteError
from headroom.sizes import Bytes

Device = Union[torch.device, str, int, None]

_backend.check_torch()


def device_of(device: Device = None) -> torch.device:
    """A device with its index: None is the current accelerator's, a number one of its cards."""
    if isinstance(device, (torch.device, str)):
        if str(device).startswith("sim"):
            check_there()
        device = torch.device(device)
        if device.index is not None or device.type == "cpu":
            return device
        return torch.device(device.type, torch.accelerator.current_device_index())
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        if device is not None:
            raise UsageError(f"[headroom] expected a device of this process, received '{device}' where there "
                             "is no GPU; try headroom.simulate(...)")
        return torch.device("cpu")
    index = torch.accelerator.current_device_index() if device is None else device
    return torch.device(accelerator.type, index)


@dataclasses.dataclass(frozen=True)
class GpuMemoryStats:
    """`allocated` is what tensors have, rounded as the allocator rounds; `reserved` what it took from
    the card for them. Peaks are since reset_peak_memory_stats(), or since the start."""
    device: torch.device
    allocated: Bytes
    reserved: Bytes
    active: Bytes
    requested: Bytes
    inactive_split: Bytes
    max_allocated: Bytes
    max_reserved: Bytes
    max_active: Bytes
    max_requested: Bytes
    allocated_in_all: Bytes
    freed_in_all: Bytes
    allocations: int
    segments: int
    retries: int
    ooms: int
    free: Optional[Bytes]  # of the card; None: this process has no context there
    total: Optional[Bytes]


COUNTS = ("allocations", "segments", "retries", "ooms")


def get_gpu_memory_stats(device: Device = None) -> GpuMemoryStats:
    """Of a card, or of the CPU while a CountCpuMemory lives."""
    device = device_of(device)
    found = _engine.memory_stats(device)
    return GpuMemoryStats(device=device, **{
        key: value if key in COUNTS or value is None else Bytes(value)
        for key, value in found.items()})


def reset_peak_memory_stats(device: Device = None) -> None:
    """From here on the peaks are of what is in use now, or more. A GpuMemoryScope that is open keeps
    its own."""
    _engine.reset_peak_memory_stats(device_of(device))


def log_gpu_memory_stats(prefix: str = "", device: Device = None,
                         sink: Optional[Callable[[str], Any]] = print) -> str:
    """"after epoch 3: cuda:0 allocated 5.23 GiB, reserved 6.45 GiB, peak 7.12 GiB", to the sink and
    as the answer."""
    line = _engine.memory_line(prefix, device_of(device))
    if sink is not None:
        sink(line)
    return line


def memory_summary(device: Device = None) -> str:
    """A table of what is in use, the peaks and the sums."""
    return _engine.memory_summary(device_of(device))


@dataclasses.dataclass(frozen=True)
class Cleared:
    given_back: Bytes
    devices: list[dict[str, Any]]
    lingering: list[str]  # with force: what is alive, biggest first


def clear_gpu_memory(force: bool = False) -> Cleared:
    """Gives back what nobody uses: the caches of every card that this process has. With `force` it
    first collects Python's garbage and waits for the cards, and drops cuBLAS's workspaces, autocast's
    casts and pinned memory, too; then it lists what lives on. Tensors themselves are freed by letting
    go of them."""
    if force:
        import gc
        gc.collect()
    found = _engine.clear_memory(force)
    return Cleared(Bytes(found["given_back"]), found["devices"], found["lingering"])


@dataclasses.dataclass(frozen=True)
class GpuMemoryUse:
    """What a block of code did to a device's memory."""
    allocated: Bytes  # in all, freed again or not
    freed: Bytes
    kept: Bytes  # more at the end than at the beginning; negative: less
    peak: Bytes  # the most at one time, what was there before included
    peak_rise: Bytes  # of it, above the beginning
    reserved_kept: Bytes
    peak_reserved: Bytes


class GpuMemoryScope:
    """What a block of code does to a device's memory. Scopes may nest and overlap.

        with GpuMemoryScope("forward") as forward:
            ...
        forward.use.peak_rise        # 2.70 GiB

    With a name the line goes to `sink` at the end."""

    def __init__(self, name: str = "", device: Device = None,
                 sink: Optional[Callable[[str], Any]] = None) -> None:
        self.name = name
        self.device = device_of(device)
        self.sink = sink
        self._scope: Optional[_engine.GpuMemoryScope] = None
        self._use: Optional[GpuMemoryUse] = None
        self._line = ""

    def __enter__(self) -> GpuMemoryScope:
        self._scope, self._use = _engine.GpuMemoryScope(self.device), None
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self._use, self._line = self.use, str(self)
        self._scope = None
        if self.sink is not None:
            self.sink(self._line)

    @property
    def use(self) -> GpuMemoryUse:
        """From the beginning to now, or to the end."""
        if self._scope is None:
            if self._use is None:
                raise RuntimeError("a GpuMemoryScope is used in a with statement")
            return self._use
        return GpuMemoryUse(**{key: Bytes(value) for key, value in self._scope.use().items()})

    def __str__(self) -> str:
        return self._line if self._scope is None else self._scope.line(self.name)


class record_history:
    """Everything that happens to a device's memory, for a viewer: a name that ends in .json is for
    ui.perfetto.dev, any other for pytorch.org/memory_viz.

        with record_history("memory.pickle"):
            train()
    """

    def __init__(self, path: str, device: Device = None) -> None:
        self.path = path
        self.device = device_of(device)

    def __enter__(self) -> record_history:
        folder = os.path.dirname(os.path.abspath(self.path))
        if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
            raise WriteError(f"[record_history] cannot write {self.path}: {folder} is no folder, or one that "
                             "cannot be written to")
        self._recording = _engine.Recording(self.device)
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self._recording.end()
        self._recording.write(self.path)


CountCpuMemory = _engine.CountCpuMemory

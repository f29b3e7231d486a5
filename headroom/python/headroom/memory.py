"""How much memory this process's tensors take, the same for cuda, sim and cpu.

On a machine without a GPU all of it works and says so: no tensor takes memory of a GPU, so these figures are 0
and their device is None. The CPU's own memory is counted only while a CountCpuMemory lives."""
from __future__ import annotations

import dataclasses
import itertools
import os
from types import TracebackType
from typing import Any, Callable, Optional, TypeVar, Union

import torch

from headroom import _backend, _engine
from headroom.card import behind, check_there, shown
from headroom.errors import UsageError, WriteError
from headroom.sizes import Bytes

Device = Union[torch.device, str, int, None]
Figures = TypeVar("Figures")

_backend.check_torch()


def device_of(device: Device = None) -> torch.device:
    """A device with its index. None means the current device of the accelerator, a number one of its cards."""
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


NO_GPU = "no GPU, and the CPU's memory is not counted"


def _counted(device: Device) -> Optional[torch.device]:
    """The device as the engine names it. None: the CPU, whose memory is not counted."""
    found = behind(device_of(device))
    if found.type == "cpu":
        try:
            _engine.memory_stats(found)
        except UsageError:
            return None
    return found


def _in_their_words(text: str, device: torch.device) -> str:
    """A text that begins with the name of the engine's device, with the name that the program knows."""
    return text.replace(str(device), str(shown(device)), 1)


@dataclasses.dataclass(frozen=True)
class GpuMemoryStats:
    """`allocated` is the memory of tensors after rounding; `reserved` the memory that the allocator took
    from the card. Peaks count from reset_peak_memory_stats(), or from the start."""
    device: Optional[torch.device]  # None: there is no GPU, so that no tensor takes memory of one
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
    """The figures of a card, or of the CPU while a CountCpuMemory lives."""
    counted = _counted(device)
    if counted is None:
        return _of_no_gpu(GpuMemoryStats)
    return GpuMemoryStats(device=shown(counted), **{
        key: value if key in COUNTS or value is None else Bytes(value)
        for key, value in _engine.memory_stats(counted).items()})


def _of_no_gpu(figures: type[Figures]) -> Figures:
    """Each figure is 0; what is unknown is None."""
    made = {field.name: None if str(field.type).startswith("Optional") else 0 if field.type == "int" else Bytes(0)
            for field in dataclasses.fields(figures)}  # type: ignore[arg-type]
    return figures(**made)


def reset_peak_memory_stats(device: Device = None) -> None:
    """Restarts peaks from current usage. An open GpuMemoryScope keeps its own."""
    counted = _counted(device)
    if counted is not None:
        _engine.reset_peak_memory_stats(counted)


def log_gpu_memory_stats(prefix: str = "", device: Device = None,
                         sink: Optional[Callable[[str], Any]] = print) -> str:
    """Sends "after epoch 3: cuda:0 allocated 5.23 GiB, reserved 6.45 GiB, peak 7.12 GiB" to the sink
    and returns it."""
    counted = _counted(device)
    line = NO_GPU if counted is None else _in_their_words(_engine.memory_line("", counted), counted)
    line = f"{prefix}: {line}" if prefix else line
    if sink is not None:
        sink(line)
    return line


def memory_summary(device: Device = None) -> str:
    """A table of current figures, peaks and sums."""
    counted = _counted(device)
    if counted is None:
        return f"Memory: {NO_GPU}\n"
    return _in_their_words(_engine.memory_summary(counted), counted)


@dataclasses.dataclass(frozen=True)
class Cleared:
    given_back: Bytes
    devices: list[dict[str, Any]]
    lingering: list[str]  # with force: live allocations, biggest first; equal ones in one line


def clear_gpu_memory(force: bool = False) -> Cleared:
    """Gives unused memory back: the caches of every card of this process. With `force` it first collects
    Python's garbage and waits for the cards, also drops cuBLAS's workspaces, autocast's casts and
    pinned memory, and then lists live allocations. To free a tensor, drop all references to it."""
    if force:
        import gc
        gc.collect()
    found = _engine.clear_memory(force)
    for one in found["devices"]:
        one["device"] = str(shown(torch.device(one["device"])))
    return Cleared(Bytes(found["given_back"]), found["devices"], _joined(found["lingering"]))


NO_HISTORY = ", no history of it"


def _joined(lines: list[str]) -> list[str]:
    """Equal lines as one, and how to get what is unknown."""
    joined = []
    for line, equal in itertools.groupby(lines):
        count = len(list(equal))
        device = torch.device(line.partition(" ")[0])
        text = _in_their_words(line, device).removesuffix(NO_HISTORY)
        joined.append(text if count == 1 else f"{text}, {count} times")
    if any(line.endswith(NO_HISTORY) for line in lines):
        joined.append("try with headroom.record_history(\"memory.pickle\"): ... around the program and this call, "
                      "which then names the module and operator that made each")
    return joined


@dataclasses.dataclass(frozen=True)
class GpuMemoryUse:
    """The memory that a block of code used on a device."""
    allocated: Bytes  # in total, freed again or not
    freed: Bytes
    kept: Bytes  # more at the end than at the beginning; negative: less
    peak: Bytes  # the most at one time, including the memory at the beginning
    peak_rise: Bytes  # peak less the memory at the beginning
    reserved_kept: Bytes
    peak_reserved: Bytes


class GpuMemoryScope:
    """Measures the memory that a block of code uses on a device. Scopes may nest and overlap.

        with GpuMemoryScope("forward") as forward:
            ...
        forward.use.peak_rise        # 2.70 GiB

    At the end a line with the name goes to `sink`."""

    def __init__(self, name: str = "", device: Device = None,
                 sink: Optional[Callable[[str], Any]] = None) -> None:
        self.name = name
        self.device = device_of(device)
        self.sink = sink
        self._counted: Optional[torch.device] = None
        self._scope: Optional[_engine.GpuMemoryScope] = None
        self._use: Optional[GpuMemoryUse] = None
        self._line = ""

    def __enter__(self) -> GpuMemoryScope:
        self._counted, self._use = _counted(self.device), None
        if self._counted is None:
            self._use, self._line = _of_no_gpu(GpuMemoryUse), f"{self.name}: {NO_GPU}" if self.name else NO_GPU
        else:
            self._scope = _engine.GpuMemoryScope(self._counted)
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
        if self._scope is None or self._counted is None:
            return self._line
        line = _in_their_words(self._scope.line(""), self._counted)
        return f"{self.name}: {line}" if self.name else line


class record_history:
    """Records all memory events of a device for a viewer: a file name that ends in .json is for
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
            raise WriteError(f"[record_history] cannot write {self.path}: {folder} is not a "
                             "folder that can be written")
        self._recording = _engine.Recording(behind(self.device))
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self._recording.end()
        self._recording.write(self.path)


CountCpuMemory = _engine.CountCpuMemory

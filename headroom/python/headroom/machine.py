"""The GPUs of this machine, and which one has room. Only `find_best_device` and `wait_for_gpu` import
torch, because they return a `torch.device`."""
from __future__ import annotations

import dataclasses
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any, Callable, Optional

from headroom import _core
from headroom.errors import BusyError, UnavailableError, UsageError
from headroom.sizes import Bytes, Size

if TYPE_CHECKING:
    import torch


@dataclasses.dataclass(frozen=True)
class GpuProcess:
    """A process on a card. Unknown facts are None."""
    pid: Optional[int]
    user: Optional[str]
    command: Optional[str]
    used: Optional[Bytes]
    kind: str  # "compute", "graphics", "other-namespace"


@dataclasses.dataclass(frozen=True)
class Gpu:
    """A card at the time of the last sample. Unknown facts are None."""
    index: int  # the driver's, as nvidia-smi counts
    uuid: str
    name: str
    pci: Optional[str]
    total: Optional[Bytes]
    used: Optional[Bytes]
    reserved: Optional[Bytes]  # by the driver
    free: Optional[Bytes]
    usable: Optional[Bytes]  # for a new process: free, less unused leases, less the margin
    utilization: Optional[float]  # 0 to 1
    temperature_c: Optional[float]
    power_w: Optional[float]
    simulated: bool
    processes: Optional[list[GpuProcess]]


@dataclasses.dataclass(frozen=True)
class Picked:
    """A card with the requested memory."""
    index: int  # the driver's
    uuid: str
    name: str
    usable: Bytes
    cuda_index: Optional[int]  # CUDA's number in this process; None: hidden from it


def _bytes(count: Optional[int]) -> Optional[Bytes]:
    return None if count is None else Bytes(count)


def _process(one: dict[str, Any]) -> GpuProcess:
    return GpuProcess(one["pid"], one["user"], one["command"], _bytes(one["used_bytes"]), one["kind"])


def _gpu(one: dict[str, Any]) -> Gpu:
    processes = one["processes"]
    return Gpu(index=one["index"], uuid=one["uuid"], name=one["name"], pci=one["pci"],
               total=_bytes(one["total_bytes"]), used=_bytes(one["used_bytes"]),
               reserved=_bytes(one["reserved_bytes"]), free=_bytes(one["free_bytes"]),
               usable=_bytes(one["usable_bytes"]), utilization=one["utilization"],
               temperature_c=one["temperature_c"], power_w=one["power_w"],
               simulated=one["simulated"],
               processes=None if processes is None else [_process(p) for p in processes])


def gpus(which: str = "") -> list[Gpu]:
    """The cards, with the processes on them. `which` is as for --gpus: "all", "0,2", a UUID,
    "sim:8x24GiB"; empty: HEADROOM_GPUS, else all. Without a driver the list is empty. Where this process takes
    simulated cards for CUDA's (as_cuda, a rehearsal), they are the cards of the machine."""
    if not which and _take_the_place_of_cuda():
        return [_gpu_of(card) for card in _simulated()]
    return [_gpu(one) for one in _core.gpus(which)["gpus"]]


def _simulated() -> list[Any]:
    """The simulated cards of this process."""
    simulated = sys.modules.get("headroom.card")
    return simulated.cards() if simulated else []


def _take_the_place_of_cuda() -> bool:
    simulated = sys.modules.get("headroom.card")
    return simulated is not None and simulated.shows_cuda()


def _gpu_of(card: Any) -> Gpu:
    used = Bytes(card.capacity - card.free)
    return Gpu(index=card.index, uuid=f"GPU-00000000-0000-0000-0000-{card.index:012d}", name=card.name, pci=None,
               total=card.capacity, used=used, reserved=None, free=card.free, usable=card.free, utilization=None,
               temperature_c=None, power_w=None, simulated=True, processes=[])


def _picked_of(need: int, count: int) -> list[Picked]:
    """The simulated cards with the most free memory."""
    best = sorted(gpus(), key=lambda one: -(one.free or 0))[:count]
    if len(best) < count or (best[-1].free or 0) < need:
        raise UnavailableError(f"[select_gpus] need {count} with {Bytes(need)}; this process has "
                               + (", ".join(f"{one.name} with {one.free} free" for one in gpus())))
    return [Picked(one.index, one.uuid, one.name, one.free or Bytes(0), one.index) for one in best]


def _need(min_memory: Optional[Size], min_memory_mb: Optional[float]) -> int:
    if min_memory is not None and min_memory_mb is not None:
        raise UsageError("[find_best_device] expected min_memory or min_memory_mb, received both; "
                         "try min_memory=\"10GiB\"")
    return Bytes(min_memory or 0) if min_memory_mb is None else int(float(min_memory_mb) * 2**20)


def select_gpus(min_memory: Size = 0, *, count: int = 1, gpus: str = "", order: str = "most-free",
                timeout: float = 0, interval: float = 1,
                progress: Optional[Callable[[str], None]] = None) -> list[Picked]:
    """`count` cards with `min_memory` usable each, the best first. Waits up to `timeout` seconds and
    samples every `interval`; `progress` gets a sentence about once a second.

    Raises BusyError if no card has the memory in time, UnavailableError if there are too few cards
    or none is large enough."""
    need = Bytes(min_memory)
    if need < 0 or count < 1:
        raise UsageError("[select_gpus] expected no negative size and at least one card, received "
                         f"'{need}' and '{count}'")
    if not gpus and _take_the_place_of_cuda():
        return _picked_of(need, count)
    answer = _core.select(gpus=gpus, need=need, count=count, order=order,
                          timeout_s=timeout, interval_s=interval,
                          progress=progress or (lambda sentence: None))
    if not answer["picked"]:
        kind = UnavailableError if answer["cannot_be_met"] else BusyError
        raise kind(f"[select_gpus] {answer['sentence']}")
    return [Picked(one["index"], one["uuid"], one["name"], Bytes(one["usable_bytes"]),
                   one["cuda_index"]) for one in answer["picked"]]


def _best_of(cards: list[Any], need: int) -> torch.device:
    best = max(cards, key=lambda card: card.free)
    if best.free < need:
        raise BusyError(f"[find_best_device] need {Bytes(need)}; best is {best.device} with "
                        f"{best.free} free")
    return best.device  # type: ignore[no-any-return]


def _device(picked: Picked) -> torch.device:
    import torch

    if picked.cuda_index is None:
        raise UnavailableError(f"[find_best_device] CUDA_VISIBLE_DEVICES hides GPU {picked.index} "
                               f"({picked.name}) from this process; try unsetting it")
    return torch.device("cuda", picked.cuda_index)


def _or_cpu(find: Callable[[], torch.device], allow_cpu: bool) -> torch.device:
    import torch

    try:
        return find()
    except (BusyError, UnavailableError) as why:
        if not allow_cpu:
            raise
        warnings.warn(f"{why}; taking the CPU", stacklevel=3)
        return torch.device("cpu")


def find_best_device(min_memory: Optional[Size] = None, *, min_memory_mb: Optional[float] = None,
                     allow_cpu: bool = True) -> torch.device:
    """The card with the most usable memory, at least `min_memory`; a simulated one while this process
    simulates. If there is none, the CPU with a warning that gives the reason, or, with
    allow_cpu=False, BusyError or UnavailableError.

        device = headroom.find_best_device("10GiB")
    """
    need = _need(min_memory, min_memory_mb)
    simulated = _simulated()
    if simulated:
        return _or_cpu(lambda: _best_of(simulated, need), allow_cpu)
    return _or_cpu(lambda: _device(select_gpus(need)[0]), allow_cpu)


def wait_for_gpu(min_memory: Optional[Size] = None, *, timeout: float = 3600, interval: float = 30,
                 allow_cpu: bool = False, min_gpu_memory_mb: Optional[float] = None,
                 gpu_wait_timeout_minutes: Optional[float] = None,
                 gpu_check_interval_seconds: Optional[float] = None,
                 progress: Optional[Callable[[str], None]] = None) -> torch.device:
    """Waits until a card has `min_memory`, and returns its device. `timeout` and `interval` are
    seconds. `progress` gets sentences with the missing memory and its holders; without it they go to
    standard error every half minute. Raises BusyError (a TimeoutError) if no card has the memory in
    time, UnavailableError if waiting cannot help."""
    need = _need(min_memory, min_gpu_memory_mb)
    if gpu_wait_timeout_minutes is not None:
        timeout = 60 * gpu_wait_timeout_minutes
    if gpu_check_interval_seconds is not None:
        interval = gpu_check_interval_seconds
    simulated = _simulated()
    if simulated:
        return _or_cpu(lambda: _best_of(simulated, need), allow_cpu)
    tell = progress or _Rarely(30)
    return _or_cpu(lambda: _device(select_gpus(need, timeout=timeout, interval=interval,
                                               progress=tell)[0]), allow_cpu)


class _Rarely:
    """Prints to standard error, at most once in so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.last: Optional[float] = None

    def __call__(self, sentence: str) -> None:
        now = time.monotonic()
        if self.last is None or now - self.last >= self.seconds:
            self.last = now
            print(f"headroom: waiting: {sentence}", file=sys.stderr)

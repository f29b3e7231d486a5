"""`torch.sim`: the counterpart of `torch.cuda` for simulated cards."""
from __future__ import annotations

import contextlib
import sys
from typing import Any, Iterator, Optional, Union

import torch
from torch import OutOfMemoryError  # noqa: F401 - torch.sim.OutOfMemoryError

from headroom import _engine, card
from headroom._sim_parts import amp, nvtx, why_not  # noqa: F401 - torch.sim.amp, torch.sim.nvtx
from headroom.card import Card, card_of, cards, check_there
from headroom.errors import UsageError

Device = Union[torch.device, str, int, None]


def _index(device: Device) -> int:
    if device is None:
        return current_device()
    if isinstance(device, int):
        return current_device() if device < 0 else device
    device = torch.device(device)
    if device.type not in card.names:
        raise UsageError(f"[torch.sim] expected a simulated device, received '{device}'; try sim:0")
    return current_device() if device.index is None else device.index


def _card(device: Device) -> Card:
    return card_of(_index(device))


# ---- Devices

def is_available() -> bool:
    return device_count() > 0


_initialized = True  # torch.utils.checkpoint reads it to decide whether to restore random numbers


def is_initialized() -> bool:
    return True


def init() -> None:
    """Does nothing: the cards exist already."""


def _lazy_init() -> None:
    """As init()."""


def _is_in_bad_fork() -> bool:
    return False


def device_count() -> int:
    return len(cards())


def current_device() -> int:
    return torch.accelerator.current_device_index()


def set_device(device: Device) -> None:
    torch.accelerator.set_device_index(_index(device))


def exchange_device(device: int) -> int:
    before = current_device()
    if device >= 0:
        set_device(device)
    return before


_exchange_device = maybe_exchange_device = _maybe_exchange_device = exchange_device


class device(contextlib.ContextDecorator):
    """Selects the card that "sim" means inside a `with`; None or a negative number changes nothing."""

    def __init__(self, device: Device) -> None:
        self.idx = -1 if device is None or device == -1 else _index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = exchange_device(self.idx)

    def __exit__(self, *error: Any) -> None:
        set_device(self.prev_idx)


class device_of(device):
    """Selects the card of a tensor; a tensor elsewhere changes nothing."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(tensor.device.index if tensor.device.type == "sim" else None)


def synchronize(device: Device = None) -> None:
    """Waits for all work; on a simulated card it is done when it is called."""
    torch.accelerator.synchronize(_index(device))


def get_device_name(device: Device = None) -> str:
    return _card(device).name


class _Properties:
    def __init__(self, card: Card) -> None:
        self.name = card.name
        self.total_memory = int(card.capacity)
        self.major, self.minor = get_device_capability(card.index)
        self.multi_processor_count = 1

    def __repr__(self) -> str:
        return f"_SimDeviceProperties(name='{self.name}', total_memory={self.total_memory >> 20}MB)"


def get_device_properties(device: Device = None) -> _Properties:
    return _Properties(_card(device))


def get_device_capability(device: Device = None) -> tuple[int, int]:
    return 8, 0


def can_device_access_peer(device: Device, peer: Device) -> bool:
    return _index(device) != _index(peer)


# ---- Streams: they have an order, and no time passes on them

def Stream(device: Device = None, priority: int = 0, **more: Any) -> torch.Stream:
    return torch.Stream(device=torch.device("sim", _index(device)), priority=priority)


def Event(enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> torch.Event:
    return torch.Event(device="sim", enable_timing=enable_timing, blocking=blocking,
                       interprocess=interprocess)


def current_stream(device: Device = None) -> torch.Stream:
    return torch._C._accelerator_getStream(_index(device))


def default_stream(device: Device = None) -> torch.Stream:
    return torch.Stream(stream_id=0, device_index=_index(device),
                        device_type=torch._C._autograd.DeviceType.PrivateUse1.value)


def set_stream(stream: Optional[torch.Stream]) -> None:
    if stream is not None:
        torch.accelerator.set_stream(stream)


@contextlib.contextmanager
def stream(stream: Optional[torch.Stream]) -> Iterator[None]:
    if stream is None:
        yield
        return
    with stream:
        yield


# ---- Memory

def memory_allocated(device: Device = None) -> int:
    return torch.accelerator.memory_allocated(_index(device))


def max_memory_allocated(device: Device = None) -> int:
    return torch.accelerator.max_memory_allocated(_index(device))


def memory_reserved(device: Device = None) -> int:
    return torch.accelerator.memory_reserved(_index(device))


def max_memory_reserved(device: Device = None) -> int:
    return torch.accelerator.max_memory_reserved(_index(device))


def memory_stats(device: Device = None) -> dict[str, Any]:
    return torch.accelerator.memory_stats(_index(device))


def reset_peak_memory_stats(device: Device = None) -> None:
    check_there()
    _engine.reset_peak_memory_stats(torch.device("sim", _index(device)))


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats
memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def reset_accumulated_memory_stats(device: Device = None) -> None:
    torch.accelerator.reset_accumulated_memory_stats(_index(device))


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Free and total bytes of the card."""
    card = _card(device)
    return int(card.free), int(card.capacity)


def empty_cache() -> None:
    torch.accelerator.empty_cache()


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    check_there()
    return _engine.memory_summary(torch.device("sim", _index(device)))


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    _card(device)._card.memory_fraction = fraction


def get_per_process_memory_fraction(device: Device = None) -> float:
    return _card(device)._card.memory_fraction


def ipc_collect() -> None:
    """Nothing is shared between processes."""


# ---- Random numbers: the CPU's for the same seed

def _generator(device: Device = None) -> torch.Generator:
    return _card(device)._card.generator()


def manual_seed(seed: int) -> None:
    if is_available():
        _generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    for index in range(device_count()):
        _generator(index).manual_seed(int(seed))


def seed() -> None:
    _generator().seed()


def seed_all() -> None:
    manual_seed_all(_generator().seed())


def initial_seed() -> int:
    return _generator().initial_seed()


def get_rng_state(device: Device = "sim") -> torch.Tensor:
    return _generator(device).get_state()


def set_rng_state(state: torch.Tensor, device: Device = "sim") -> None:
    _generator(device).set_state(state)


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state_all(states: list[torch.Tensor]) -> None:
    for index, state in enumerate(states):
        set_rng_state(state, index)


# ---- Mixed precision

def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return True


# ---- Names besides

memory = random = sys.modules[__name__]  # torch.cuda has some functions there as well


def utilization(device: Device = None) -> int:
    """No time passes on a simulated card."""
    _card(device)
    return 0


def is_current_stream_capturing() -> bool:
    return False


def __getattr__(name: str) -> Any:
    raise AttributeError(why_not(name))

"""The answers of `torch.cuda` that torch_sim.py does not have, or has in another form."""
from __future__ import annotations

import collections
from typing import Any, Iterator, Optional, Sequence

import torch

from headroom import _engine, torch_sim
from headroom.torch_sim import Device, _card, _index, current_device, device_count

# ---- As CUDA's, on every machine


def _lazy_init() -> None:
    """The cards are there."""


init = _lazy_init


def _lazy_call(function: Any, **more: Any) -> None:
    function()


def is_compiled() -> bool:
    return True


_is_compiled = is_compiled


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return including_emulation or get_device_capability()[0] >= 8


def is_tf32_supported() -> bool:
    return get_device_capability()[0] >= 8


def get_arch_list() -> list[str]:
    return sorted({f"sm_{major}{minor}" for major, minor in map(get_device_capability, range(device_count()))})


def get_gencode_flags() -> str:
    return " ".join(f"-gencode compute=compute_{one[3:]},code={one}" for one in get_arch_list())


def set_device(device: Device) -> None:
    index = _index(device)
    if index >= device_count():
        raise RuntimeError(f"CUDA error: invalid device ordinal: card {index} of {device_count()}; try more cards, "
                           f"such as --gpus sim:{index + 1}xH100")
    torch_sim.set_device(index)


# ---- Properties of the card

def get_device_capability(device: Device = None) -> tuple[int, int]:
    major, _, minor = _card(device)._card.capability.partition(".")
    return int(major), int(minor)


class DeviceProperties:
    """As torch.cuda.get_device_properties, for the members that a simulated card has."""

    def __init__(self, index: int) -> None:
        card = torch_sim._card(index)
        self.name = card.name
        self.major, self.minor = get_device_capability(index)
        self.total_memory = int(card.capacity)
        self.multi_processor_count = card._card.multiprocessors
        self.warp_size = 32
        self.max_threads_per_multi_processor = card._card.threads_of_multiprocessor
        self.max_threads_per_block = 1024
        self.regs_per_multiprocessor = 65536
        self.shared_memory_per_block = 48 << 10
        self.shared_memory_per_block_optin = 99 << 10
        self.shared_memory_per_multiprocessor = 100 << 10
        self.L2_cache_size = 40 << 20
        self.is_integrated = self.is_multi_gpu_board = 0
        self.gcnArchName = self.name
        self.uuid = f"00000000-0000-0000-0000-{index:012d}"
        self.pci_bus_id, self.pci_device_id, self.pci_domain_id = index + 1, 0, 0

    def __repr__(self) -> str:
        return (f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
                f"total_memory={self.total_memory >> 20}MB, "
                f"multi_processor_count={self.multi_processor_count})")


def get_device_properties(device: Device = None) -> DeviceProperties:
    index = _index(device)
    if index >= device_count():
        raise AssertionError(f"Invalid device id: card {index} of {device_count()}")  # as torch says it
    return DeviceProperties(index)


def device_memory_used(device: Device = None) -> int:
    card = _card(device)
    return int(card.capacity - card.free)


# ---- Streams and events: torch's own, which show themselves as CUDA's

class Stream(torch.Stream):
    def __new__(cls, device: Device = None, priority: int = 0, **identity: Any) -> Stream:
        if identity:
            return super().__new__(cls, **{**identity, "device_type": _SIM})
        return super().__new__(cls, device=f"sim:{_index(device)}", priority=priority)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("cuda", self.device_index)

    @property
    def cuda_stream(self) -> int:
        return self.stream_id

    @property
    def priority(self) -> int:
        return 0

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return 0, -5


_SIM: int = torch._C._autograd.DeviceType.PrivateUse1.value


def _as_cuda(stream: torch.Stream) -> Stream:
    return Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=_SIM)


def current_stream(device: Device = None) -> Stream:
    return _as_cuda(torch_sim.current_stream(device))


def default_stream(device: Device = None) -> Stream:
    return _as_cuda(torch_sim.default_stream(device))


class StreamContext:
    def __init__(self, stream: Optional[torch.Stream]) -> None:
        self.stream = stream
        self._before: list[torch.Stream] = []

    def __enter__(self) -> None:
        if self.stream is not None:
            self._before = [torch_sim.current_stream(self.stream.device_index), torch_sim.current_stream()]
            torch_sim.set_stream(self.stream)

    def __exit__(self, *error: Any) -> None:
        while self._before:
            torch_sim.set_stream(self._before.pop(0))


def stream(stream: Optional[torch.Stream]) -> StreamContext:
    return StreamContext(stream)


class _AnyEvent(type):
    def __instancecheck__(cls, one: Any) -> bool:
        return isinstance(one, _TorchEvent)


_TorchEvent = torch.Event


class Event(metaclass=_AnyEvent):
    """Makes torch's own events of the card; they compare and wait among themselves only."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False,
                interprocess: bool = False, external: bool = False) -> Any:
        return _TorchEvent(device="sim", enable_timing=enable_timing, blocking=blocking)


class AnyEvent(metaclass=_AnyEvent):
    """torch.Event, which takes a device."""

    def __new__(cls, device: Any = None, **more: Any) -> Any:
        kind = "cuda" if device is None else torch.device(device).type
        return _TorchEvent(device="sim" if kind == "cuda" else device, **more)


# ---- Memory

def memory_snapshot(mempool_id: Any = None, include_traces: bool = True) -> list[dict[str, Any]]:
    """Empty: `headroom rehearse --snapshot` writes one."""
    return []


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for path, value in torch_sim.memory_stats(device).items():
        *parents, last = path.split(".")
        at = nested
        for one in parents:
            at = at.setdefault(one, {})
        at[last] = value
    return nested


# ---- Random numbers

class _Generators:
    """`torch.cuda.default_generators`: one a card."""

    def __len__(self) -> int:
        return device_count()

    def __getitem__(self, index: int) -> torch.Generator:
        return torch_sim._generator(index)

    def __iter__(self) -> Iterator[torch.Generator]:
        return (self[index] for index in range(len(self)))


default_generators = _Generators()


# CUDA's state is a seed and an offset, 16 bytes, into which DTensor looks. The CPU's, which a simulated card has,
# is kept here under such a number.
_states: collections.OrderedDict[tuple[int, int], torch.Tensor] = collections.OrderedDict()
_MOST_STATES = 4096


def _numbers(seed: int, offset: int) -> torch.Tensor:
    seed = (seed + (1 << 63)) % (1 << 64) - (1 << 63)  # as a signed number
    return torch.tensor([seed, offset]).view(torch.uint8)


def get_rng_state(device: Device = "cuda") -> torch.Tensor:
    generator = torch_sim._generator(device)
    state, seed = generator.get_state(), generator.initial_seed()
    if _states:
        key = next(reversed(_states))
        if key[0] == seed and torch.equal(_states[key], state):
            return _numbers(*key)
    key = seed, 4 * (next(reversed(_states))[1] // 4 + 1 if _states else 0)
    _states[key] = state
    if len(_states) > _MOST_STATES:
        _states.popitem(last=False)
    return _numbers(*key)


def set_rng_state(state: torch.Tensor, device: Device = "cuda") -> None:
    seed, offset = (int(one) for one in state.cpu().contiguous().view(torch.int64))
    known = next((one for key, one in _states.items() if _numbers(*key).tolist() == state.tolist()), None) \
        if offset else _states.get((seed, 0))
    if known is not None:
        torch_sim._generator(device).set_state(known)
    else:
        torch_sim._generator(device).manual_seed(seed)


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state_all(states: Sequence[torch.Tensor]) -> None:
    for index, state in enumerate(states):
        set_rng_state(state, index)


def _get_generator(device: torch.device) -> torch.Generator:
    return torch_sim._generator(device)


def _get_device(device: Any) -> torch.device:
    return torch.device("cuda", _index(device))


def _get_rng_state_offset(device: Device = "cuda") -> int:
    return 0


def _set_rng_state_offset(offset: int, device: Device = "cuda") -> None:
    """The numbers of a simulated card are the CPU's, which have no offset."""


# ---- torch.cuda.nccl, which DataParallel uses

def nccl_is_available(tensors: Any) -> bool:
    return True


def nccl_version() -> tuple[int, int, int]:
    return 2, 28, 9


def nccl_reduce(inputs: Sequence[torch.Tensor], output: Optional[torch.Tensor] = None, root: int = 0,
                op: int = 0, streams: Any = None, comms: Any = None, *, outputs: Any = None) -> None:
    """Takes no memory besides the output, as NCCL's."""
    to = inputs[root] if output is None else output
    to.copy_(inputs[root])
    if _card(to.device).mode == "compute":
        for i, one in enumerate(inputs):
            if i != root:
                to.add_(one.to(to.device))

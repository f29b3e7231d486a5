"""The simulated cards of this process: those of its box, or of an estimate that runs."""
from __future__ import annotations

import torch

from headroom import _engine
from headroom.errors import UsageError
from headroom.sizes import Bytes, Size


names = {"sim"}  # of the kind of device: "cuda", too, while programs take these cards for CUDA's (masquerade)

_of_tensor = torch._C.TensorBase.device.__get__  # type: ignore[attr-defined]
_of_storage = torch._C.StorageBase.device.__get__  # type: ignore[attr-defined]


def shows_cuda() -> bool:
    """True while this process takes the cards for CUDA's (masquerade)."""
    return "cuda" in names


def behind(device: torch.device) -> torch.device:
    """The device in LibTorch's words: sim:0 for a card that is shown as cuda:0."""
    return torch.device("sim", device.index) if device.type in names else device


def shown(device: torch.device) -> torch.device:
    """The device in the program's words, the other way round."""
    return torch.device("cuda", device.index) if device.type == "sim" and shows_cuda() else device


def lies_on_card(one: torch.Tensor | torch.UntypedStorage) -> bool:
    """True on a simulated card, also where that shows itself as CUDA's (masquerade)."""
    of = _of_tensor if isinstance(one, torch.Tensor) else _of_storage
    # Under a default device torch asks the tensor's class, and so gets the name that is shown.
    return of(one).type in names


class Card:
    """One simulated card. It outlives its simulation while a tensor lies on it."""

    def __init__(self, card: _engine.Card) -> None:
        self._card = card

    @property
    def index(self) -> int:
        return self._card.index

    @property
    def device(self) -> torch.device:
        return shown(torch.device("sim", self.index))

    @property
    def name(self) -> str:
        return self._card.name

    @property
    def capacity(self) -> Bytes:
        return Bytes(self._card.capacity)

    @property
    def free(self) -> Bytes:
        """Free bytes of the card; cached blocks of the allocator are not free."""
        return Bytes(self._card.free_bytes)

    @property
    def mode(self) -> str:
        """"shape-only" (tensors have no data, unknown values read as zero) or "compute" (the CPU's
        kernels run). Tensors that were made shape-only never get data."""
        return self._card.mode

    @mode.setter
    def mode(self, mode: str) -> None:
        self._card.mode = mode

    @property
    def rules(self) -> str:
        """Kernel sizes to assume: "cuda", or "cpu" to compare with tools that run on the CPU."""
        return self._card.rules

    @rules.setter
    def rules(self, rules: str) -> None:
        self._card.rules = rules

    @property
    def values_read_as_zero(self) -> int:
        """How often an unknown value was read (`.item()`, `.cpu()`)."""
        return self._card.values_read_as_zero

    @property
    def decided_by_unknown(self) -> int:
        """How often an unknown value was read alone (`.item()`, `if`), so that the program may have
        decided by it."""
        return self._card.decided_by_unknown

    def hold(self, size: Size) -> None:
        """Makes another process hold so much of the card from now on; 0 ends that."""
        if (held := Bytes(size)) < 0:
            raise UsageError(f"[hold] expected a size of 0 or more, received '{held}'")
        if held > self.capacity:
            raise UsageError(f"[hold] expected at most the {self.capacity} that the card has, received "
                             f"'{held}'")
        self._card.set_used_by_others(held)

    def __repr__(self) -> str:
        return f"<{self.device}: {self.name}, {self.free} free of {self.capacity}>"


def cards() -> list[Card]:
    """The cards of this process now: of its box, or of an estimate that runs."""
    return [Card(card) for card in _engine.cards()]


def check_there() -> None:
    """Raises UsageError if this process has no simulated cards."""
    if not _engine.cards():
        raise UsageError("[headroom] expected a simulation, received none; try headroom.simulate(...)")


def card_of(device: torch.device | str | int) -> Card:
    """The card behind a simulated device of this process."""
    check_there()
    device = behind(torch.device("sim", device) if isinstance(device, int) else torch.device(device))
    if device.type != "sim":
        raise UsageError(f"[card_of] expected a simulated device, received '{device}'; try sim:0")
    index = device.index if device.index is not None else torch.accelerator.current_device_index()
    found = cards()
    if not 0 <= index < len(found):
        raise IndexError(f"no card {index} in a box of {len(found)}")
    return found[index]

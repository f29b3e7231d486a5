"""The card of a device, and how much of it is free for a training."""
from __future__ import annotations

import dataclasses
import json
from typing import Iterable, Optional, Union

import torch
from torch import nn

from headroom import _core, _engine, machine, memory, simulation
from headroom.card import behind, card_of
from headroom.errors import UsageError


@dataclasses.dataclass
class Room:
    """A card in the form that a dry run takes, and its free memory."""
    card: str
    free: Optional[int] = None  # None: all
    before_context: bool = False  # `free` still includes the process's CUDA context
    rules: str = "cuda"
    settings: Optional[str] = None
    taken: Optional[torch.Size] = None  # by others than this training
    taken_bytes: int = 0  # after the allocator's rounding

    def take_the_rest(self, device: torch.device) -> list[torch.Tensor]:
        """Allocates a tensor of all bytes that are not free, on an empty card of this kind; the caller keeps
        it. Its size is computed once."""
        if self.free is None:
            return []
        if self.taken is None:
            stats = _engine.memory_stats(device)
            rest = stats["total" if self.before_context else "free"] - self.free
            self.taken = torch.Size([max(rest, 0)])
        made = torch.empty(self.taken, dtype=torch.uint8, device=device)
        self.taken_bytes = _engine.memory_stats(device)["reserved"]
        return [made]


def room_of(device: Union[torch.device, str, None], ours: Iterable[torch.Tensor]) -> Room:
    """The free memory of a device now, plus the memory of `ours` there. cuBLAS's workspaces of this process
    count as taken: the training will have its own."""
    at = memory.device_of(device)
    if at.type not in ("cuda", "sim"):
        raise UsageError(f"[find_max_batch_size] expected a GPU, received '{at}'; try gpu=\"RTX 4090\"")
    card = card_of(at) if behind(at).type == "sim" else None
    stats = memory.get_gpu_memory_stats(at)
    again = stats.reserved - stats.allocated + sum(
        _rounded(one) for one in {id(one): one for one in ours}.values() if one.device == at)
    if card is not None:
        assert stats.free is not None
        box = simulation.current_box()
        free = min(stats.free, int(card._card.memory_fraction * card.capacity)
                   - stats.reserved)
        return Room(_named(card.name, card.capacity), free + again, rules=card.rules,
                    settings=None if box is None else box.settings)
    gpu = _gpu_of(at)
    total = torch.cuda.mem_get_info(at)[1] if gpu is None or gpu.total is None else gpu.total
    card_spec = _named(torch.cuda.get_device_name(at) if gpu is None else gpu.name, total)
    if stats.free is None and gpu is not None and gpu.free is not None:
        # Not the usable memory: a lease there may be this program's own.
        return Room(card_spec, gpu.free, before_context=True)
    free = torch.cuda.mem_get_info(at)[0] if stats.free is None else stats.free
    return Room(card_spec, free + again)


def tensors_of_training(model: object, optimizer: object) -> Iterable[torch.Tensor]:
    """The tensors of a model, its gradients and its optimizer."""
    if isinstance(model, nn.Module):
        for one in model.parameters():
            yield one
            if one.grad is not None:
                yield one.grad
        yield from model.buffers()
    if isinstance(optimizer, torch.optim.Optimizer):
        for state in optimizer.state.values():
            yield from (one for one in state.values() if isinstance(one, torch.Tensor))


def _rounded(tensor: torch.Tensor) -> int:
    """Bytes rounded up to 512, as in the allocator."""
    return -(-tensor.numel() * tensor.element_size() // 512) * 512


def _named(name: str, total: int) -> str:
    """The catalogue's card of that name, which has a chip; else a card with a size only."""
    try:
        if _core.gpus(f"sim:{name}")["gpus"][0]["name"] == name:
            return name
    except UsageError:
        pass
    return json.dumps({"name": name, "total_bytes": total, "reserved_bytes": 0, "profile": ""})


def _gpu_of(device: torch.device) -> Optional[machine.Gpu]:
    """The driver's facts about the device; None: it has none."""
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    return next((one for one in machine.gpus("all") if one.uuid.partition("-")[2] == uuid), None)

"""torch.cuda.comm and DataParallel: what they copy between the cards of one process, in the pieces that
PyTorch copies. Source: torch/csrc/cuda/comm.cpp of PyTorch 2.11."""
from __future__ import annotations

from typing import Any, Optional, Sequence

import torch
from torch._utils import (_flatten_dense_tensors, _take_tensors, _unflatten_dense_tensors)

Tensor = torch.Tensor
Device = Any


def _on(device: Device) -> torch.device:
    return torch.device("cuda", device) if isinstance(device, int) else torch.device(device)


def broadcast(tensor: Tensor, devices: Sequence[Device]) -> list[Tensor]:
    return [tensor if tensor.device == _on(one) else tensor.to(_on(one), non_blocking=True) for one in devices]


def broadcast_out(tensor: Tensor, out: Sequence[Tensor]) -> list[Tensor]:
    return [one.copy_(tensor, non_blocking=True) for one in out]


def broadcast_coalesced(tensors: Sequence[Tensor], devices: Sequence[Device],
                        buffer_size: int) -> list[list[Tensor]]:
    """Small tensors travel together, and stay views of what they travelled in."""
    copies: list[dict[int, Tensor]] = [{} for _ in devices]
    numbers = {id(one): i for i, one in enumerate(tensors)}
    for chunk in _take_tensors(tensors, buffer_size):
        flat = _flatten_dense_tensors(chunk) if len(chunk) > 1 else chunk[0]
        for at, device in zip(copies, devices):
            there = flat.to(_on(device), non_blocking=True)
            parts = _unflatten_dense_tensors(there, chunk) if len(chunk) > 1 else [there]
            for one, part in zip(chunk, parts):
                at[numbers[id(one)]] = one if one.device == _on(device) else part
    return [[at[i] for i in range(len(tensors))] for at in copies]


def scatter(tensor: Tensor, devices: Sequence[Device], chunk_sizes: Optional[Sequence[int]] = None,
            dim: int = 0, streams: Any = None) -> tuple[Tensor, ...]:
    parts = tensor.split(list(chunk_sizes), dim) if chunk_sizes is not None else \
        tensor.chunk(len(devices), dim)
    return tuple(part if part.device == _on(one) else part.contiguous().to(_on(one), non_blocking=True)
                 for part, one in zip(parts, devices))


def scatter_out(tensor: Tensor, out: Sequence[Tensor], dim: int = 0, streams: Any = None) -> tuple[Tensor, ...]:
    parts = tensor.split([one.size(dim) for one in out], dim)
    return tuple(one.copy_(part, non_blocking=True) for part, one in zip(parts, out))


def gather(tensors: Sequence[Tensor], dim: int = 0, destination: Optional[int] = None) -> Tensor:
    at = torch.device("cpu") if destination == -1 else \
        torch.device("cuda", torch.cuda.current_device() if destination is None else destination)
    shape = list(tensors[0].shape)
    shape[dim] = sum(one.size(dim) for one in tensors)
    return gather_out(tensors, torch.empty(shape, dtype=tensors[0].dtype, device=at), dim)


def gather_out(tensors: Sequence[Tensor], out: Tensor, dim: int = 0) -> Tensor:
    for part, one in zip(out.split([one.size(dim) for one in tensors], dim), tensors):
        part.copy_(one, non_blocking=True)
    return out


FUNCTIONS = {"_broadcast": broadcast, "_broadcast_out": broadcast_out, "_gather": gather,
             "_broadcast_coalesced": broadcast_coalesced, "_scatter": scatter, "_scatter_out": scatter_out,
             "_gather_out": gather_out}

"""Runs programs of many ranks on simulated cards: DDP, FSDP2, everything on torch.distributed.

    torch.distributed.init_process_group("sim")            # one process a rank, as with "nccl"
    with headroom.pretend_ranks(8):                         # this process alone, as one rank of 8
        model = DistributedDataParallel(Net().to("sim"))
"""
from __future__ import annotations

import contextlib
from typing import Any, Iterator

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

from headroom import _engine
from headroom.card import lies_on_card
from headroom.errors import UsageError


def _exchanging(options: Any, _: Any) -> dist.Backend:
    """Tensors with known values cross by gloo."""
    host = dist.ProcessGroupGloo(dist.PrefixStore("host", options.store), options.group_rank,
                                 options.group_size, options.timeout)
    return _engine.sim_backend(host)


def _pretending(options: Any, _: Any) -> dist.Backend:
    return _engine.pretended_ranks(options.group_rank, options.group_size)


class _NoEmptyRank(TorchFunctionMode):
    """A mask of unknown values over ranks keeps all ranks: which ones have an empty batch is unknown."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__getitem__ and isinstance(args[1], torch.Tensor) and \
                args[1].dtype == torch.bool and not _engine.knows_values(args[1]):
            return args[0]
        return func(*args, **(kwargs or {}))


def _take_every_rank_for_one_with_a_batch() -> None:
    """Patches SyncBatchNorm, which drops the statistics of ranks with an empty batch."""
    from torch.nn.modules._functions import SyncBatchNorm

    forward = SyncBatchNorm.forward

    def of_all_ranks(context: Any, x: torch.Tensor, *arguments: Any) -> torch.Tensor:
        if not lies_on_card(x):
            return forward(context, x, *arguments)
        with _NoEmptyRank():
            return forward(context, x, *arguments)

    SyncBatchNorm.forward = staticmethod(of_all_ranks)  # type: ignore[method-assign]


def register() -> None:
    _take_every_rank_for_one_with_a_batch()
    dist.Backend.register_backend("sim", _exchanging, extended_api=True, devices=["sim"])
    dist.Backend.register_backend("pretend", _pretending, extended_api=True, devices=["cpu", "sim"])
    # The defaults for a program that names no backend.
    dist.Backend.default_device_backend_map.update(cpu="gloo", sim="sim")


@contextlib.contextmanager
def pretend_ranks(world_size: int, rank: int = 0) -> Iterator[None]:
    """Makes this process one rank of `world_size`, so that its memory can be measured without the other
    ranks. Collectives behave as if every other rank held the same tensors; recv changes nothing. Call it
    after simulate(); it works for tensors on cards and on the CPU."""
    if not 0 <= rank < world_size:
        raise UsageError(f"[pretend_ranks] expected a rank of 0 ... {world_size - 1}, received {rank}")
    if "PRETEND" not in dist.Backend._plugins:
        raise UsageError("[pretend_ranks] expected a simulation before it, received none; try "
                         "headroom.simulate(...)")
    dist.init_process_group("pretend", store=dist.HashStore(), rank=rank, world_size=world_size)
    try:
        yield
    finally:
        dist.destroy_process_group()

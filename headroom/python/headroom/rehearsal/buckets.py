"""DistributedDataParallel copies gradients into buckets, which its reducer makes in C++: they count as gradients."""
from __future__ import annotations

import functools
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from headroom.card import lies_on_card


class _Made(TorchDispatchMode):
    """The tensors that are made meanwhile, whatever makes them."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and lies_on_card(made):
            self.tensors.append(made)
        return made


def install(know: Callable[[list[tuple[str, torch.Tensor]]], None]) -> None:
    if not dist.is_available():
        return

    def noting(function: Any) -> Any:
        @functools.wraps(function)
        def noted(*arguments: Any, **more: Any) -> Any:
            with _Made() as made:
                result = function(*arguments, **more)
            know([("", one) for one in made.tensors])
            return result
        return noted

    model = torch.nn.parallel.DistributedDataParallel
    model._ddp_init_helper = noting(model._ddp_init_helper)  # type: ignore[method-assign]
    dist.Reducer._rebuild_buckets = noting(dist.Reducer._rebuild_buckets)  # type: ignore[method-assign]

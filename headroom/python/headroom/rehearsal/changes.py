"""What `--advice` tries: changes that can be switched on from outside the script."""
from __future__ import annotations

import functools
from typing import Any, Optional

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def apply(change: Optional[str], models: list[nn.Module]) -> None:
    """Before the first step, to the models that are trained."""
    if change == "checkpointing":
        for one in models:
            _checkpoint(one)
    elif change == "bf16-autocast":
        for one in models:
            one.forward = _in_bf16(one.forward)  # type: ignore[method-assign]
    elif change == "fused-optimizer":
        for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD):
            kind.step = _fused(kind.step)  # type: ignore[method-assign]


def _checkpoint(model: nn.Module) -> None:
    """By the model's own switch, else its blocks: the longest list of modules of one kind."""
    own = [one for one in model.modules() if hasattr(one, "gradient_checkpointing_enable")]
    if own and getattr(own[0], "supports_gradient_checkpointing", True):
        own[0].gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return
    lists = [list(one) for one in model.modules() if isinstance(one, (nn.ModuleList, nn.Sequential)) and
             len(one) > 1 and len({type(part) for part in one}) == 1 and next(one.parameters(), None) is not None]
    for block in max(lists, key=len, default=[]):
        forward = block.forward

        @functools.wraps(forward)
        def again(*arguments: Any, _forward: Any = forward, **more: Any) -> Any:
            return checkpoint(_forward, *arguments, use_reentrant=False, **more)

        block.forward = again  # type: ignore[method-assign]


def _in_bf16(forward: Any) -> Any:
    @functools.wraps(forward)
    def cast(*arguments: Any, **more: Any) -> Any:
        with torch.autocast("cuda", torch.bfloat16):
            return forward(*arguments, **more)
    return cast


def _fused(step: Any) -> Any:
    @functools.wraps(step)
    def fused(self: torch.optim.Optimizer, *arguments: Any, **more: Any) -> Any:
        for group in self.param_groups:
            group.update(fused=True, foreach=False)
        return step(self, *arguments, **more)
    return fused

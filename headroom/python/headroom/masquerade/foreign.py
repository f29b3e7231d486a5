"""torch.compile, and packages that have kernels of their own for CUDA."""
from __future__ import annotations

import sys
from typing import Any, Callable, Optional

import torch

from headroom.masquerade.patches import Patches

_said: set[str] = set()


def say_once(text: str) -> None:
    """A line on standard error, the first time."""
    if text not in _said:
        _said.add(text)
        print(f"headroom: {text}", file=sys.stderr)


def install(patches: Patches) -> None:
    patches.set(torch, "compile", _run_eagerly)


def _run_eagerly(model: Optional[Callable[..., Any]] = None, **options: Any) -> Any:
    """torch.compile: the module itself, whose memory in eager mode is the figure."""
    say_once("torch.compile is left out; the figures are those of eager mode, which are rarely smaller")
    if model is None:
        return lambda function: _run_eagerly(function, **options)
    if isinstance(model, torch.nn.Module):
        vars(model)["_orig_mod"] = model  # programs look there for the module that was compiled
    return model

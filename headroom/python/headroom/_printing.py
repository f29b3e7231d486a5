"""Prints tensors with unknown values on simulated cards: the shape, as for a tensor on "meta", and that
the values are unknown. Printing reads no value, so it does not count as a decision."""
from __future__ import annotations

from typing import Any

import torch

from headroom import _engine
from headroom.card import lies_on_card


def _is_unknown(tensor: torch.Tensor) -> bool:
    return lies_on_card(tensor) and tensor.layout == torch.strided and tensor.numel() > 0 and \
        not _engine.knows_values(tensor)


def say_what_is_unknown() -> None:
    """Once a process, with the backend."""
    of_values, of_number = torch._tensor_str._tensor_str, torch.Tensor.__format__

    def _tensor_str(self: torch.Tensor, indent: int) -> str:
        if _is_unknown(self):
            return f"values unknown, size={tuple(self.shape)}"
        return of_values(self, indent)

    def __format__(self: torch.Tensor, form: str) -> Any:
        plain = type(self) in (torch.Tensor, torch.nn.Parameter)
        return "unknown" if plain and self.dim() == 0 and _is_unknown(self) else of_number(self, form)

    torch._tensor_str._tensor_str = _tensor_str
    torch.Tensor.__format__ = __format__  # type: ignore[method-assign]

"""Warns of programs that choose their device themselves. accelerate, transformers.Trainer and Lightning do
not know `sim`: inside a box they run on the CPU, and nothing of that is simulated. The warning comes when
the box ends, from the signs that are visible then; none of these programs is patched."""
from __future__ import annotations

import sys
import warnings
from typing import Any, Iterable

ACCELERATE = "accelerate (which transformers.Trainer uses)"


def on_the_cpu() -> set[str]:
    """The programs that report that they took the CPU."""
    state = getattr(sys.modules.get("accelerate.state"), "PartialState", None)
    device = getattr(state, "_shared_state", {}).get("device")
    return {ACCELERATE} if getattr(device, "type", None) == "cpu" else set()


def suspected() -> set[str]:
    """The programs that do not report their device."""
    return {"Lightning"} if {"lightning.pytorch", "pytorch_lightning"} & set(sys.modules) else set()


def warn(cards: Iterable[Any], before: set[str]) -> None:
    """Called at the end of a box. `before`: the programs that were on the CPU when it began."""
    took = on_the_cpu() - before
    if not any(card._card.requests for card in cards):
        took |= on_the_cpu() | suspected()
    if took:
        how = "ACCELERATE_TORCH_DEVICE=sim in the environment, " if ACCELERATE in took else ""
        warnings.warn(
            f"[simulate] {' and '.join(sorted(took))} took the CPU in this box: its work is not "
            f"simulated, and no figure includes its memory; try {how}a step of your own with "
            "model.to(\"sim\"), or headroom.estimate(model, batch)", RuntimeWarning, stacklevel=4)

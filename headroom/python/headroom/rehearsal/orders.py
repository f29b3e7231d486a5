"""The orders that `headroom rehearse` gives to the program that it starts."""
from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, Optional

from headroom.errors import UsageError

VARIABLE = "HEADROOM_REHEARSAL"


@dataclasses.dataclass(frozen=True)
class Orders:
    gpus: str  # as `simulate` takes it
    folder: str  # for the reports of all processes, and what else they share
    mode: str = "shape-only"
    rules: str = "cuda"
    steps: int = 3
    all_ranks: bool = False  # each rank is a process; else this one is rank 0 and pretends the others
    assume: Optional[float] = 0.5
    change: Optional[str] = None  # one that is tried (changes.py)
    spill: bool = False  # what is needed later waits on the host when memory runs out
    trace: bool = False
    # Of a run without a limit: name and room of the cards that it should fit into.
    limits: Optional[list[tuple[str, int]]] = None
    keep_writes: bool = False
    settings: Optional[str] = None
    ranks: Optional[int] = None  # of a job, whatever a launcher says

    @staticmethod
    def of_environment() -> Optional[Orders]:
        text = os.environ.get(VARIABLE)
        if not text:
            return None
        given: dict[str, Any] = json.loads(text)
        return Orders(**given)


def visible(gpus: str) -> str:
    """The cards that the program may use. The command that starts it hides real ones by an empty
    CUDA_VISIBLE_DEVICES. What the program, or one around it, sets it to chooses among the simulated ones."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if not chosen:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        return gpus
    cards = json.loads(gpus)
    numbers = [int(one) for one in chosen.split(",") if one.strip().isdecimal()]
    kept = [cards[one] for one in numbers if one < len(cards)]
    if len(kept) != len(chosen.split(",")):
        raise UsageError(f"CUDA_VISIBLE_DEVICES: expected numbers below {len(cards)}, as there are so many cards, "
                         f"received '{chosen}'; try more --gpus")
    return json.dumps(kept)

"""The orders that `headroom rehearse` gives to the program that it starts."""
from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, Optional

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

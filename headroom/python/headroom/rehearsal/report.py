"""Writes what a process of a rehearsal found, for `headroom rehearse` to print."""
from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Optional

import torch

from headroom.rehearsal import missing
from headroom.rehearsal.orders import Orders
from headroom.simulation import Simulation

if TYPE_CHECKING:
    from headroom.spilling import Spill
    from headroom.rehearsal.user_files import UserFiles
    from headroom.rehearsal.watch import Watch


def _notes(watch: Watch) -> list[str]:
    if not (torch.backends.cudnn.benchmark and watch.convolves):
        return []
    return ["the script sets torch.backends.cudnn.benchmark: in its first steps cuDNN tries ways that need "
            "memory beside these figures, up to some GiB, and leaves out those for which none is free"]


def _lived() -> tuple[float, float]:
    """This process's time until now, in seconds since the machine started."""
    with open("/proc/self/stat", encoding="utf-8") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return ticks / os.sysconf("SC_CLK_TCK"), time.clock_gettime(time.CLOCK_BOOTTIME)


def write(orders: Orders, box: Simulation, watch: Watch, files: UserFiles,
          error: Optional[BaseException], spill: Optional[Spill]) -> None:
    if not watch.began:
        watch.know()  # a script that failed before has its models still
    reports = [(card, observation.end(10, orders.trace)) for card, observation in zip(box, watch.observations)]
    watch.count()
    document: dict[str, Any] = {
        "rank": int(os.environ.get("RANK", 0)),
        "lived": _lived(),
        "out_of_memory": isinstance(error, torch.OutOfMemoryError),
        "steps": watch.ended,
        "backward_passes": watch.passes, "was_stopped_after_passes": watch.was_stopped_after_passes,
        "change_made": watch.change.made,
        "spill": None if spill is None else spill.figures(),
        "parameters": watch.parameters, "trainable_parameters": watch.trainable,
        "ooms_met": sum(torch.cuda.memory_stats(card.index)["num_ooms"] for card in box),
        "not_written": files.not_written(), "stood_in": missing.stood_in(), "notes": _notes(watch),
        "cards": [{"index": card.index, "used": card._card.requests > 0, "report": report.document()}
                  for card, report in reports]}
    base = os.path.join(orders.folder, f"process-{document['rank']:06d}-{os.getpid()}")
    if orders.trace:
        facts = [("command", " ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]]))]
        for card, report in reports:
            if card._card.requests > 0:
                limit = orders.limits[card.index] if orders.limits else None
                report.write_trace(f"{base}-card-{card.index}.trace", facts, limit)
    with open(base + ".part", "w", encoding="utf-8") as file:
        json.dump(document, file)
    os.replace(base + ".part", base + ".json")

"""`headroom run --spill` inside a process of the command: headroom.spill() from the moment that torch is there,
on simulated cards if the command names some."""
from __future__ import annotations

import atexit
import json
import os
import sys
from typing import Any

VARIABLE = "HEADROOM_SPILL"


def start() -> None:
    """Once a process, right after `import torch`. A program whose torch cannot be used runs as without."""
    orders: dict[str, Any] = json.loads(os.environ[VARIABLE])
    try:
        from headroom import spilling
        if orders["gpus"]:
            from headroom.masquerade import as_cuda
            from headroom.rehearsal.orders import visible
            # For as long as the process lives.
            orders["box"] = as_cuda(visible(orders["gpus"]), "compute")
        spill = spilling.Spill(orders["host_memory"], sharers=int(os.environ.get("LOCAL_WORLD_SIZE", "1") or "1"))
    except Exception as error:  # noqa: BLE001: the user's program is not ours to end
        print(f"headroom run: --spill has no effect on process {os.getpid()}: {error}", file=sys.stderr, flush=True)
        return
    atexit.register(_write, orders["folder"], spill, os.getpid())


def _write(folder: str, spill: Any, pid: int) -> None:
    if os.getpid() != pid or not spill.was_used:  # a forked child, or a process that used no card
        return
    import torch

    rank = os.environ.get("RANK")
    peak = max((torch.cuda.max_memory_reserved(one) for one in range(torch.cuda.device_count())), default=0)
    report = {"rank": int(rank) if rank else None, "peak_reserved_bytes": peak, **spill.figures()}
    try:
        with open(os.path.join(folder, f"{rank or 0:0>6}.{pid}.json"), "w", encoding="utf-8") as file:
            json.dump(report, file)
    except OSError:
        pass

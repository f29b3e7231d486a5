"""One process of a rehearsal: the script's own, or that of a rank."""
from __future__ import annotations

import atexit
import os
import sys
from types import TracebackType
from typing import Any, NoReturn, Optional

import torch

from headroom.masquerade import AsCuda, as_cuda
from headroom.rehearsal import hollow, launchers, report
from headroom.rehearsal.harmless import Harmless
from headroom.rehearsal.orders import Orders
from headroom.rehearsal.watch import Watch


class Done(SystemExit):
    """Raised in the script after its last step, so that its `finally` and atexit run."""


class Process:
    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.pid = os.getpid()
        self.as_cuda: AsCuda = as_cuda(orders.gpus, orders.mode, settings=orders.settings,
                                       assume=orders.assume,
                                       pretend_ranks=not orders.all_ranks)
        self.harmless = Harmless(orders)
        if orders.mode == "shape-only":
            hollow.install(self.harmless)
        self.watch = Watch(self.as_cuda.box, orders.steps, self.stop, orders.change)
        self.error: Optional[BaseException] = None
        self.written = False
        self.stops = 0

    def stop(self) -> NoReturn:
        """After the last step. A script that goes on all the same is ended."""
        self.write("steps")
        self.stops += 1
        if self.stops > 3:
            sys.stdout.flush()
            os._exit(0)
        raise Done(0)

    def write(self, ended: str) -> None:
        if self.written or os.getpid() != self.pid:
            return
        self.written = True
        if self.watch.began or self.watch.used() or self.error is not None:
            report.write(self.orders, self.as_cuda.box, self.watch, self.harmless, ended, self.error)

    def at_exit(self) -> None:
        self.write("error" if self.error is not None else "script")


_process: Optional[Process] = None


def begin(orders: Orders) -> None:
    global _process
    if orders.visible is None:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = orders.visible
    _process = process = Process(orders)
    launchers.install(orders)
    shown = sys.excepthook

    def note(kind: type[BaseException], error: BaseException, trace: Optional[TracebackType]) -> Any:
        process.error = error
        return shown(kind, error, trace)

    sys.excepthook = note
    atexit.register(process.at_exit)
    torch.cuda.reset_peak_memory_stats()

"""One process of a rehearsal: the script's own, or that of a rank."""
from __future__ import annotations

import atexit
import dataclasses
import os
import signal
import sys
import threading
from typing import Any, NoReturn, Optional

import torch

from headroom.masquerade import AsCuda, as_cuda
from headroom.masquerade.foreign import say_once
from headroom.rehearsal import hollow, launchers, missing, notebook, offline, placeholder, report
from headroom.rehearsal.orders import Orders, visible
from headroom.rehearsal.renames import Renames
from headroom.rehearsal.user_files import UserFiles
from headroom.rehearsal.watch import Watch
from headroom.spilling import Spill


SECONDS_TO_WAIT = 10  # before a script that only reads unknown values is told so


class Done(SystemExit):
    """Raised in the script after its last step, so that its `finally` and atexit run."""


class Process:
    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.pid = os.getpid()
        self.as_cuda: AsCuda = as_cuda(orders.gpus, orders.mode, rules=orders.rules,
                                       settings=orders.settings, assume=orders.assume,
                                       pretend_ranks=not orders.all_ranks)
        self.files = UserFiles(orders)
        if not orders.keep_writes:
            Renames(self.files)
            self.files.guard()
            placeholder.install(self.files)
            offline.install()
        if orders.mode == "shape-only":
            hollow.install(self.files)
            missing.install()
        self.watch = Watch(self.as_cuda.box, orders.steps, self.begin, self.stop, orders.change)
        self.spill: Optional[Spill] = None
        if orders.spill:  # after the watch, which looks at an optimizer's states before they may leave
            self.spill = Spill(1 << 62)
        self.written = False
        self.stops = 0
        self.ended = threading.Event()
        if orders.mode == "shape-only":
            threading.Thread(target=self.tell_of_long_steps, name="headroom", daemon=True).start()

    def tell_of_long_steps(self) -> None:
        """In a thread of its own: a loop until an unknown value has grown never ends."""
        before, silent, patience = 0, 0, 1
        while not self.written and not self.ended.wait(SECONDS_TO_WAIT):
            if line := self.watch.waits():
                say_once(f"{line} goes on reading values that are unknown, and zero: if the script waits for one, it "
                         "waits for ever; --mode compute computes them")
            before, silent = self.watch.ended, silent + 1 if self.watch.ended == before else 1
            if silent == patience:  # after 10, 20, 40 ... s in one step
                print(f"headroom: {self.watch.progress()}", file=sys.stderr, flush=True)
                silent, patience = 0, 2 * patience

    def note(self, what: str) -> None:
        if os.getpid() == self.pid:  # no forked child
            self.files.open(os.path.join(self.orders.folder, f"{self.pid}.{what}"), "w").close()

    def begin(self) -> None:
        """With the first step. The command waits for the report of each process that has begun."""
        self.note("begun")

    def stop(self) -> NoReturn:
        """After the last step. A script that goes on all the same is ended."""
        self.write()
        self.note("done")
        # A loader that the script's frames keep alive would wait 5 s for each of its workers at the exit.
        torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 0.1  # type: ignore[attr-defined]
        self.stops += 1
        if self.stops > 3:
            sys.stdout.flush()
            os._exit(0)
        raise notebook.CellsAreDone() if notebook.shell() is not None else Done(0)

    def write(self) -> None:
        """After the last step, or at the exit. Python keeps the exception that ended the program."""
        if self.written or os.getpid() != self.pid:
            return
        self.written = True
        self.ended.set()
        error: Optional[BaseException] = getattr(sys, "last_value", None)
        if self.watch.began or self.watch.used() or error is not None:
            report.write(self.orders, self.as_cuda.box, self.watch, self.files, error, self.spill)

    def on_sigterm(self, *signalled: Any) -> NoReturn:
        """So that a report is written. A forked child ends as it would without this."""
        if os.getpid() != self.pid:
            os._exit(128 + signal.SIGTERM)
        sys.exit(128 + signal.SIGTERM)


def begin(orders: Orders) -> None:
    orders = dataclasses.replace(orders, gpus=visible(orders.gpus))
    process = Process(orders)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, process.on_sigterm)
    launchers.install(orders)
    notebook.install()
    atexit.register(process.write)
    torch.cuda.reset_peak_memory_stats()

"""Simulated GPUs in this process: torch works on `sim:0` as on any other device.

    box = headroom.simulate("8x24GiB")
    model = Net().to("sim:1")
    ...
    torch.sim.max_memory_allocated("sim:1")
"""
from __future__ import annotations

import atexit
from types import TracebackType
from typing import Iterator, Optional

import torch

from headroom import _backend, _engine, bitsandbytes_kernels, elsewhere
from headroom.card import Card
from headroom.errors import UnavailableError, UsageError


class Injection:
    """An injection of refusals; it lasts until `stop()`, the end of a `with`, or the end of the box."""

    def __init__(self, box: Simulation, what: str) -> None:
        self.what = what
        self._box = box
        self._injector = _engine.Injector(what)

    def stop(self) -> None:
        self._box._disturb([one for one in self._box._injections if one is not self])

    def __enter__(self) -> Injection:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Injection of {self.what}>" if self in self._box._injections else \
            f"<Injection of {self.what}, stopped>"


class Simulation:
    """A box of cards; it lasts until `end()`, the end of a `with`, or the next `simulate()`. Then its
    tensors lose their data: copy results with `.cpu()` before."""

    def __init__(self, box: _engine.Box, settings: Optional[str] = None) -> None:
        self._box = box
        self.settings = settings  # of the allocator, as given
        self._injections: list[Injection] = []
        self._injected: Optional[_engine.Injected] = None
        self.is_cuda = False  # for the programs of this process (masquerade)
        self._elsewhere = elsewhere.on_the_cpu()
        # Otherwise a process that ends right after a backward pass may be aborted: bindings/dry_run.cpp says why.
        self._backward_in_this_thread = torch.autograd.set_multithreading_enabled(False)

    def __len__(self) -> int:
        return self._box.cards()

    def __getitem__(self, index: int) -> Card:
        if not -len(self) <= index < len(self):
            raise IndexError(f"no card {index} in a box of {len(self)}")
        return Card(self._box.card(index % len(self)))

    def __iter__(self) -> Iterator[Card]:
        return (self[i] for i in range(len(self)))

    @property
    def lives(self) -> bool:
        return self._box.lives

    def inject(self, what: str) -> Injection:
        """Refuses requests on demand: "oom@100" the hundredth from now on, "oom@100:lasting",
        "oom@100:every=10". It lasts until its `stop()`, the end of its `with`, or the end of the box.
        Several injections act together."""
        if "@step=" in what:  # of a recorder in C++
            raise UsageError("[inject] expected oom@K, oom@K:lasting or oom@K:every=N, as a box in Python counts "
                             f"no steps, received '{what}'; try oom@100, or card.hold(\"4GiB\") for a neighbour")
        added = Injection(self, what)
        self._disturb([*self._injections, added])
        return added

    def _disturb(self, injections: list[Injection]) -> None:
        """Installs these injections; each continues its count."""
        if self._injected is not None:
            self._injected.end()
            self._injected = None
        self._injections = injections
        if injections:
            self._injected = _engine.Injected(self._box, [one._injector for one in injections])

    def end(self) -> None:
        """Ends the cards; tensors on them may still be freed, but not used."""
        if self.lives:
            self._disturb([])
            if not self.is_cuda:
                elsewhere.warn(self, self._elsewhere)
            self._backward_in_this_thread.__exit__(None, None, None)
            bitsandbytes_kernels.forget_tables()
        self._box.end()

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.end()

    def __repr__(self) -> str:
        return f"<Simulation of {', '.join(map(repr, self))}>" if self.lives else "<Simulation, ended>"


_current: Optional[Simulation] = None


def current_box() -> Optional[Simulation]:
    """The live box of this process. An estimate's card belongs to no box."""
    return _current if _current is not None and _current.lives else None


def without_prefix(function: str, spec: str) -> str:
    """A spec without the "sim:" of --gpus; both forms are accepted."""
    if not isinstance(spec, str):
        raise UsageError(f"[{function}] expected a card such as \"RTX 4090\" or \"24GiB\", received '{spec}'")
    return spec.removeprefix("sim:")


def checked_assumption(function: str, assume: Optional[float]) -> Optional[float]:
    if assume is not None and not 0 <= assume <= 1:
        raise UsageError(f"[{function}] expected as assume a share from 0 to 1, or None, received '{assume}'")
    return assume


def simulate(spec: str, *, mode: str = "shape-only", rules: str = "cuda",
             settings: Optional[str] = None, slow_way: bool = False,
             cublas_workspaces: bool = True, check_streams: bool = False,
             assume: Optional[float] = 0.5) -> Simulation:
    """Makes a box of simulated cards: "8x24GiB", "RTX 4090", "2xH100", "8x24GiB@lab" (shared with
    other processes). This ends an earlier box of the process.

    mode: "shape-only" - a training step in milliseconds, without data - or "compute".
    rules: "cuda", or "cpu" to compare with tools that run on the CPU.
    settings: as in PYTORCH_CUDA_ALLOC_CONF; None: those of the environment.
    slow_way: operators without a shape rule run on the CPU, over zeros.
    cublas_workspaces: the first matrix product allocates them, as on CUDA.
    assume: where the shape of a result depends on unknown values (`x[mask]`), this share of a mask is taken for
        true, and the places that topk, argsort, argmax and multinomial find for evenly spread. None: such an
        operator raises NotImplementedError.
    check_streams: an operator raises RuntimeError if it uses memory that another stream may still use.

    torch has one accelerator a process. A process that has used CUDA cannot simulate (UnavailableError), and
    a process that simulates cannot train on CUDA afterwards. Therefore `estimate` and `find_max_batch_size`
    start a child process on machines with GPUs."""
    global _current
    spec = without_prefix("simulate", spec)
    if _current is not None and _current.lives and _current.is_cuda:
        raise UsageError("[simulate] expected a process without cards that are shown as CUDA's, received one in "
                         "as_cuda or a rehearsal; try the cards that it has, or headroom.estimate(), which makes its own")
    if _current is not None:
        _current.end()
    _backend.check_torch()
    if torch.cuda.is_initialized():
        raise UnavailableError("[simulate] expected a process that has not used CUDA, received one that "
                               "has; torch allows one accelerator per process, so try another process (estimate() "
                               "and find_max_batch_size() start their own)")
    box = Simulation(_engine.simulate(spec, mode, rules, settings, slow_way, cublas_workspaces,
                                      check_streams), settings)
    for card in box:
        card._card.assume_true = checked_assumption("simulate", assume)
    _backend.register()
    _current = box
    return box


@atexit.register
def _end() -> None:
    if _current is not None:
        _current.end()

"""Memory that bends: what is needed later waits on the host, only when memory runs out.

    headroom.spill()          # from here on; or: with headroom.spill() as spill: ...

A request that the card refuses moves tensors that autograd saved, optimizers' states and idle models to the host,
and is made again. Nothing is computed twice, so the results are those of a larger card, to the bit."""
from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from types import TracebackType
from typing import Any, Iterator, Optional

import torch
from torch.optim.optimizer import (register_optimizer_step_post_hook,
                                   register_optimizer_step_pre_hook)

from headroom import _backend, _engine
from headroom.errors import UsageError
from headroom.patches import Patches
from headroom.sizes import Bytes, Size

_backend.check_torch()
_hooks = torch._C._autograd

SMALLEST_NET = 1 << 20  # bytes; smaller ones, such as a metric, do not make a second net
NEEDED_LATER = 0.5  # than all that a graph saved, and sooner than an optimizer's states

_living: Optional[Spill] = None


def states_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The tensors of its states, also of optimizers that keep lists or dictionaries of them."""
    found: list[torch.Tensor] = []

    def look(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, dict):
            for each in value.values():
                look(each)
        elif isinstance(value, (list, tuple)):
            for each in value:
                look(each)

    for state in optimizer.state.values():
        look(state)
    return found


class Nets:
    """The modules that were moved to a device as a whole, each with all that is in it. While one of several works,
    the others' weights may wait; so may a frozen one's. The weights of a single net that trains stay."""

    def __init__(self) -> None:
        self._all: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._depth = 0

    def noting(self, apply: Any) -> Any:
        """Around Module._apply, which `to`, `cuda` and `half` call for the module and then for each inside it."""
        def noted(module: torch.nn.Module, *args: Any, **options: Any) -> Any:
            self._depth += 1
            try:
                return apply(module, *args, **options)
            finally:
                self._depth -= 1
                if self._depth == 0 and sum(one.nbytes for one in module.parameters()) >= SMALLEST_NET:
                    self._all.add(module)
        return noted

    def idle(self) -> list[torch.Tensor]:
        """What no operator uses between two steps. torch.compile looks at tensors before operators do: with it all
        weights stay."""
        if len(self._all) < 2 or "torch._dynamo" in sys.modules and torch._dynamo.utils.counters["frames"]:
            return []
        inside = {id(part) for net in self._all for part in net.modules() if part is not net}
        roots = [net for net in self._all if id(net) not in inside]
        return [] if len(roots) < 2 else [one for net in roots for one in [*net.parameters(), *net.buffers()]]


class Spill:
    """What `spill` returns: figures, and the way to end it."""

    def __init__(self, host_memory: Optional[Size] = None, sharers: int = 1) -> None:
        """sharers: processes of this machine that have that memory together."""
        global _living
        if _living is not None:
            raise UsageError("[spill] expected one at a time, received a second one; try ending the first, by its "
                             "`with` or its end()")
        self._engine: Any = _engine.Spill(None if host_memory is None else int(Bytes(host_memory)), sharers)
        self._last: Optional[dict[str, Any]] = None
        self._patches = Patches()
        self._patches.wrap(torch.autograd.graph, "disable_saved_tensors_hooks", self._stepping_aside)
        self._patches.wrap(threading.Thread, "run", self._in_threads)
        self._patches.wrap(torch.optim.Optimizer, "state_dict", self._wanting_states)
        self._patches.wrap(torch.cuda.CUDAGraph, "capture_begin", self._before_capture)
        self._patches.wrap(torch.cuda.CUDAGraph, "capture_end", self._after_capture)
        self._optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._captures = self._has_captured = False
        self._nets = Nets()
        self._patches.wrap(torch.nn.Module, "_apply", self._nets.noting)
        for name in ("data_ptr", "untyped_storage"):  # not operators: they look at the memory itself
            self._patches.wrap(torch.Tensor, name, self._wanting)
        self._handles = [register_optimizer_step_pre_hook(self._before_step),
                         register_optimizer_step_post_hook(self._after_step)]
        self._hold()
        torch.cuda._lazy_call(_engine.rescue_on_cuda)
        _living = self

    # ---- Saved tensors ----

    def _pack(self, tensor: torch.Tensor) -> Any:
        return tensor.detach() if self._engine is None or self._captures else self._engine.pack(tensor)

    @staticmethod
    def _unpack(packed: Any) -> torch.Tensor:
        return packed if isinstance(packed, torch.Tensor) else _engine.unpack_spilled(packed)

    def _hold(self) -> None:
        _hooks._push_saved_tensors_default_hooks(self._pack, self._unpack)

    def _is_innermost(self) -> bool:
        top = _hooks._top_saved_tensors_default_hooks(True)
        return top is not None and top[0] == self._pack

    def _stepping_aside(self, disable: Any) -> Any:
        """torch.func refuses to work beside hooks: within its transforms nothing moves."""
        @contextlib.contextmanager
        def disabled(*args: Any, **options: Any) -> Iterator[None]:
            ours = self._is_innermost()
            if ours:
                _hooks._pop_saved_tensors_default_hooks()
            try:
                with disable(*args, **options):
                    yield
            finally:
                if ours:
                    self._hold()
        return disabled

    def _in_threads(self, run: Any) -> Any:
        """Hooks hold for one thread: the threads that begin from now on get them, too."""
        def run_with_hooks(thread: threading.Thread) -> Any:
            self._hold()
            try:
                return run(thread)
            finally:
                if self._is_innermost():
                    _hooks._pop_saved_tensors_default_hooks()
        return run_with_hooks

    # ---- Optimizers' states ----

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._optimizers.add(optimizer)
        self._engine.want(states_of(optimizer))

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self._has_captured:
            self._engine.end_step([])
            return
        self._engine.set_idle(self._nets.idle(), NEEDED_LATER)
        self._engine.end_step(states_of(optimizer))

    def _wanting(self, method: Any) -> Any:
        def wanted(tensor: torch.Tensor) -> Any:
            if self._engine is not None:
                _engine.want_idle(tensor)
            return method(tensor)
        return wanted

    def _wanting_states(self, state_dict: Any) -> Any:
        def wanted(optimizer: torch.optim.Optimizer, *args: Any, **options: Any) -> Any:
            self._engine.want(states_of(optimizer))
            return state_dict(optimizer, *args, **options)
        return wanted

    # ---- CUDA graphs ----

    def _before_capture(self, begin: Any) -> Any:
        """A graph remembers addresses: from its capture on, states and weights stay where they are."""
        def capture(*args: Any, **options: Any) -> Any:
            self._captures = self._has_captured = True
            self._engine.want([one for optimizer in self._optimizers for one in states_of(optimizer)])
            self._engine.want(self._nets.idle())
            return begin(*args, **options)
        return capture

    def _after_capture(self, end: Any) -> Any:
        def captured(*args: Any, **options: Any) -> Any:
            self._captures = False
            return end(*args, **options)
        return captured

    # ---- Figures ----

    def figures(self) -> dict[str, Any]:
        """All of them, by name."""
        return self._last if self._last is not None else self._engine.figures()  # type: ignore[no-any-return]

    @property
    def refused(self) -> int:
        """Requests that a card refused; all but the last of a run that died of it were served in the end."""
        return self.figures()["refused"]  # type: ignore[no-any-return]

    @property
    def moved_bytes(self) -> Bytes:
        """To the host, in all."""
        return Bytes(self.figures()["moved_bytes"])

    @property
    def waiting_bytes(self) -> Bytes:
        """On the host now."""
        return Bytes(self.figures()["waiting_bytes"])

    @property
    def peak_waiting_bytes(self) -> Bytes:
        """On the host at once, at most."""
        return Bytes(self.figures()["peak_waiting_bytes"])

    @property
    def seconds(self) -> float:
        """That requests waited for moves."""
        return self.figures()["seconds"]  # type: ignore[no-any-return]

    @property
    def was_used(self) -> bool:
        """Whether anything on a card was saved or refused."""
        return bool(self.figures()["saved"] or self.refused)

    def __str__(self) -> str:
        return self.figures()["text"]  # type: ignore[no-any-return]

    # ---- The end ----

    def end(self) -> None:
        """From here on a refused request fails as it would without. What waits comes back when it is needed."""
        global _living
        if _living is not self:
            return
        _living = None
        self._last = self._engine.figures()
        self._patches.undo()
        for handle in self._handles:
            handle.remove()
        if self._is_innermost():
            _hooks._pop_saved_tensors_default_hooks()
        self._engine = None

    def __enter__(self) -> Spill:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.end()


def spill(host_memory: Optional[Size] = None) -> Spill:
    """From here on, or in a `with`, a request that a card refuses moves what is needed later to the host, and is
    made again.

    host_memory: how much may wait there ("32GiB"); None: half of what the host has available now."""
    return Spill(host_memory)

"""A profile by memory: what operators and modules allocated, and how long they took."""
from __future__ import annotations

import collections
import dataclasses
import html
import json
import os
import threading
from types import TracebackType
from typing import Any, Optional

import torch
from torch import nn
from torch.nn.modules import module as hooks

from headroom import _backend, _engine
from headroom.errors import UsageError, WriteError
from headroom.sizes import Bytes

_backend.check_torch()


@dataclasses.dataclass(frozen=True)
class ProfileRow:
    """One operator, range or module. A figure whose name begins with self_ leaves out what its calls
    called; the others include it. docs/reference/json.md explains each."""
    name: str
    kind: str  # "operator", "range", "allocation" or "module"
    calls: int
    shapes: Optional[list[list[int]]]  # of its inputs; None: its calls differ
    cpu_s: float
    self_cpu_s: float
    device_s: Optional[float]  # None: no device was used
    self_device_s: Optional[float]
    self_bytes: Bytes
    total_bytes: Bytes
    self_kept_bytes: Bytes
    cpu_bytes: Bytes
    self_cpu_bytes: Bytes


def row_of(found: dict[str, Any]) -> ProfileRow:
    return ProfileRow(**{key: Bytes(value) if key.endswith("_bytes") else value
                         for key, value in found.items()})


def numbered(name: str, before: collections.Counter[str]) -> str:
    """The name, with its number from the second time on: "Sequential", "Sequential#2"."""
    before[name] += 1
    return name if before[name] == 1 else f"{name}#{before[name]}"


class ModuleNames:
    """Names the modules that run: those of the first model that is called as it names them itself, those of
    later ones with the class of that model in front, numbered from its second on."""

    def __init__(self) -> None:
        self.names: dict[nn.Module, str] = {}
        self.classes: collections.Counter[str] = collections.Counter()

    def take_model(self, model: nn.Module) -> list[tuple[str, torch.Tensor]]:
        """Its parameters and buffers, by their new names."""
        model_name = numbered(type(model).__name__, self.classes)
        prefix = model_name if self.names else ""

        def full(name: str) -> str:
            return ".".join(part for part in (prefix, name) if part)

        for name, one in model.named_modules():
            self.names.setdefault(one, full(name))
        named = [*model.named_parameters(remove_duplicate=False),
                 *model.named_buffers(remove_duplicate=False)]
        return [(full(name), one) for name, one in named]


class profile:  # pylint: disable=invalid-name
    """Profiles a block of code by memory, on cuda, sim and cpu.

        with headroom.profile() as profile:
            train_step()
        print(profile)
        print(profile.table(sort_by="self_device_s", row_limit=20, group_by="module"))
        profile.save_chrome("profile.json")

    On cuda and cpu it runs PyTorch's own profiler; on simulated cards bytes are those of a dry run, and device
    time is the cost model's. Ranges of torch.profiler.record_function are rows too. Modules get their names from
    the models that are called inside the block. After an exception the profile has what ran until then."""

    def __init__(self) -> None:
        self._profile: Optional[_engine.Profile] = None
        self._profiler: Optional[_engine.Profiler] = None
        self._modules = ModuleNames()
        self._running = threading.local()
        self._handles: list[Any] = []

    # ---- The block

    def __enter__(self) -> profile:
        if self._profiler is not None:
            raise UsageError("[profile] expected one block at a time, received a second one inside the first; "
                             "try another headroom.profile() after it")
        self._profile, self._modules = None, ModuleNames()
        self._by_range = not _engine.cards()
        self._profiler = _engine.Profiler([])
        self._handles = [hooks.register_module_forward_pre_hook(self._enter_module),
                         hooks.register_module_forward_hook(self._leave_module, always_call=True)]
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        for handle in self._handles:
            handle.remove()
        profiler, self._profiler = self._profiler, None
        self._modules = ModuleNames()  # the old one holds the models
        assert profiler is not None
        try:
            for one in reversed(self._open()):
                one.end()
        finally:
            self._open().clear()
            self._profile = profiler.end()

    def step(self) -> None:
        """Says that a training step begins, so that what precedes its forward pass on a simulated card belongs to
        no module."""
        if self._profiler is not None:
            self._profiler.begin_step()

    def _open(self) -> list[_engine.ModuleRange]:
        if not hasattr(self._running, "open"):
            self._running.open = []
        return self._running.open

    def _enter_module(self, module: nn.Module, _: Any) -> None:
        if self._profiler is None:
            return
        if module not in self._modules.names:
            tensors = self._modules.take_model(module)
            self._profiler.know(tensors)
        if self._by_range:
            self._open().append(_engine.ModuleRange(self._modules.names[module]))

    def _leave_module(self, module: nn.Module, _: Any, __: Any) -> None:
        if self._by_range and self._open():
            self._open().pop().end()

    # ---- The result

    def _result(self) -> _engine.Profile:
        if self._profile is None:
            raise UsageError("[profile] expected a block that has ended, received one that runs; try "
                             "with headroom.profile() as profile: ..., and the figures after it")
        return self._profile

    @classmethod
    def of(cls, recorded: torch.profiler.profile) -> profile:
        """The profile of a torch.profiler.profile that has ended and recorded record_shapes=True and
        profile_memory=True."""
        results = getattr(getattr(recorded, "profiler", None), "kineto_results", None)
        if results is None:
            raise UsageError("[profile.of] expected a torch.profiler.profile that has ended, received "
                             f"'{type(recorded).__name__}'")
        lacking = [one for one in ("profile_memory", "record_shapes") if not getattr(recorded, one, True)]
        if lacking:
            raise UsageError(f"[profile.of] expected a profile with {' and '.join(lacking)}, received one without; try "
                             "torch.profiler.profile(profile_memory=True, record_shapes=True)")
        made = cls()
        made._profile = _engine.read_profile(results)
        return made

    @property
    def simulated_time(self) -> bool:
        """True if device time is the cost model's."""
        return self._result().simulated_time

    @property
    def rows(self) -> list[ProfileRow]:
        """Every operator and range, by its own bytes."""
        return self.rows_by()

    def rows_by(self, group_by: str = "operator", sort_by: str = "self_bytes",
                row_limit: int = 0) -> list[ProfileRow]:
        """The rows by "operator", "shape" or "module"; row_limit 0: all."""
        return [row_of(one) for one in self.document(sort_by, row_limit, group_by)["rows"]]

    def table(self, sort_by: str = "self_bytes", row_limit: int = 10, group_by: str = "operator",
              width: int = 100) -> str:
        """The rows as text. sort_by: a figure of ProfileRow, or torch.profiler's name of one, such as
        "self_cuda_memory_usage" or "cpu_time_total". row_limit 0: all."""
        return self._result().table(sort_by, max(row_limit, 0), group_by, width)

    def document(self, sort_by: str = "self_bytes", row_limit: int = 0,
                 group_by: str = "operator") -> dict[str, Any]:
        """As `headroom profile --json` prints it, without the model."""
        return self._result().document(sort_by, max(row_limit, 0), group_by)

    def to_json(self, sort_by: str = "self_bytes", row_limit: int = 0, group_by: str = "operator") -> str:
        return json.dumps(self.document(sort_by, row_limit, group_by))

    def save(self, path: str, group_by: str = "operator") -> None:
        """Writes the rows as JSON."""
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write(self.to_json(group_by=group_by) + "\n")
        except OSError as error:
            raise WriteError(f"[profile] cannot write {os.fspath(path)}: {error.strerror}") from error

    def save_chrome(self, path: str) -> None:
        """Writes calls and memory counters for ui.perfetto.dev and chrome://tracing."""
        self._result().write_chrome(os.fspath(path))

    def __str__(self) -> str:
        return self.table() if self._profile is not None else "headroom.profile(), not ended"

    __repr__ = __str__  # what a notebook shows without HTML

    def _repr_html_(self) -> str:
        if self._profile is None:
            return html.escape(str(self))
        columns = ("name", "calls", "self_bytes", "total_bytes", "cpu_bytes", "cpu_s", "device_s")
        lines = ["<tr>" + "".join(f"<th>{name}</th>" for name in columns) + "</tr>"]
        for row in self.rows_by(row_limit=10):
            lines.append("<tr>" + "".join(f"<td>{html.escape(_shown(getattr(row, name)))}</td>"
                                          for name in columns) + "</tr>")
        return "<table>\n" + "\n".join(lines) + "\n</table>"


def _shown(value: Any) -> str:
    return f"{value:.6f}" if isinstance(value, float) else "" if value is None else str(value)

"""The results of a dry run. Sizes are `Bytes`; docs/reference/json.md describes the same document."""
from __future__ import annotations

import dataclasses
import html
import os
from typing import Any, Iterable, Optional, Union

from headroom import _engine
from headroom.errors import UsageError
from headroom.sizes import Bytes


MOST_OF_A_CELL = 1_500_000  # bytes of a page in a notebook
TITLE = "A training step"
Path = Union[str, "os.PathLike[str]"]


@dataclasses.dataclass(frozen=True)
class Peak:
    allocated: Bytes  # blocks of tensors: torch.cuda.max_memory_allocated()
    active: Bytes  # every tensor rounded to 512 bytes, workspaces left out
    requested: Bytes  # before rounding
    reserved: Bytes  # taken from the card: torch.cuda.max_memory_reserved()
    process: Bytes  # with the CUDA context: the figure of nvidia-smi
    phase: str  # in which `allocated` was highest: "forward", "backward", "optimizer", ...
    step: int  # counted from 1; 0: before the first


@dataclasses.dataclass(frozen=True)
class Parts:
    """The parts of the memory at the peak; they add up to Peak.allocated."""
    parameters: Bytes
    buffers: Bytes
    inputs: Bytes
    gradients: Bytes
    optimizer: Bytes
    activations: Bytes
    temporaries: Bytes
    workspace: Bytes
    rounding: Bytes


@dataclasses.dataclass(frozen=True)
class ModulePeak:
    name: str  # "" is everything
    peak: Bytes


@dataclasses.dataclass(frozen=True)
class StepPeak:
    step: int
    allocated: Bytes  # the highest in this step
    after: Bytes  # at its end


@dataclasses.dataclass(frozen=True)
class Assumption:
    """Taken for granted where the shape of a result depended on unknown values (`assume`)."""
    what: str
    where: str  # a line of the program; "" in a dry run
    count: int


@dataclasses.dataclass(frozen=True)
class LiveTensor:
    """A tensor that was alive at the peak."""
    bytes: Bytes
    category: str
    phase: str
    step: int
    module: str
    operation: str
    line: str = ""  # of the program, in a rehearsal


def _sized(document: dict[str, Any]) -> dict[str, Any]:
    """Removes `_bytes` from keys and makes their values Bytes."""
    out: dict[str, Any] = {}
    for key, value in document.items():
        if key.endswith("_bytes"):
            out[key.removesuffix("_bytes")] = None if value is None else Bytes(value)
        else:
            out[key] = value
    return out


def _cut(text: str, headline: str, count: int) -> str:
    """The text with at most `count` of the indented lines under a headline."""
    before, headline, after = text.partition(headline)
    lines = after.splitlines(keepends=True)
    end = next((i for i, line in enumerate(lines) if not line.startswith("  ")), len(lines))
    kept = lines[:min(end, max(count, 0))]
    return before + (headline if kept else "") + "".join(kept + lines[end:])


class Report:
    """How much memory a training step needs, when, and what for.

        report = headroom.estimate(model, batch, gpu="RTX 4090")
        report.fits, report.peak.allocated, report.peak.phase
        print(report)
    """

    def __init__(self, report: _engine.Report, notes: Iterable[str] = ()) -> None:
        self._report: Optional[_engine.Report] = report
        self._document = report.document()
        self._text = report.describe(len(self._document["by_module"]), len(self._document["biggest"]))
        self.notes = list(notes)  # differences between the given model and the one that ran
        self.facts: list[tuple[str, str]] = []  # names and values that the trace and the page show

    def __getstate__(self) -> dict[str, Any]:
        """A copy, here or in another process, has all but the trace."""
        return {**vars(self), "_report": None}

    @property
    def peak(self) -> Peak:
        return Peak(**_sized(self._document["peak"]))

    @property
    def at_peak(self) -> Parts:
        return Parts(**_sized(self._document["at_peak"]))

    @property
    def by_module(self) -> list[ModulePeak]:
        """The peak of each module, its children included; the largest first."""
        return [ModulePeak(**_sized(one)) for one in self._document["by_module"]]

    @property
    def per_step(self) -> list[StepPeak]:
        return [StepPeak(one["step"], Bytes(one["peak_allocated_bytes"]), Bytes(one["after_bytes"]))
                for one in self._document["per_step"]]

    @property
    def biggest(self) -> list[LiveTensor]:
        """The largest tensors at the peak."""
        return [LiveTensor(**{**one, "bytes": Bytes(one["bytes"])}) for one in self._document["biggest"]]

    @property
    def out_of_memory(self) -> Optional[dict[str, Any]]:
        """The request that did not fit. `peak` is then the need on a card without a limit, or, for a dry run on
        a card of a box, the peak up to that request."""
        found = self._document["out_of_memory"]
        return None if found is None else _sized(found)

    @property
    def fits(self) -> bool:
        return self._document["out_of_memory"] is None

    @property
    def values_read_as_zero(self) -> int:
        """How often the step read an unknown value from the card (`.item()`, `.cpu()`); each read as if every
        unknown number were zero."""
        return self._document["values_read_as_zero"]

    @property
    def decided_by_unknown(self) -> int:
        """How many of them were read alone (`.item()`, `if`): a real run may take another branch."""
        return self._document["decided_by_unknown"]

    @property
    def assumptions(self) -> list[Assumption]:
        return [Assumption(**one) for one in self._document["assumptions"]]

    @property
    def took_s(self) -> float:
        return self._document["took_s"]

    def document(self) -> dict[str, Any]:
        """The whole report as in JSON."""
        return self._document

    def describe(self, modules: int = 5, tensors: int = 5) -> str:
        """The report as text, with at most so many modules and tensors."""
        text = _cut(self._text, "Modules that held the most\n", modules)
        text = _cut(text, "Biggest tensors at the peak\n", tensors)
        return "".join(f"note: {note}\n" for note in self.notes) + text

    def write_trace(self, path: Path) -> None:
        """Writes every event, for `headroom trace` (docs/formats/trace.md). Needs trace=True; a copy and the
        report of a child process have no trace."""
        self._with_trace("write_trace").write_trace(os.fspath(path), self.facts)

    def save_html(self, path: Path, title: str = "") -> None:
        """Writes a page for a browser that shows memory over time. Needs trace=True, as write_trace."""
        self._with_trace("save_html").write_page(os.fspath(path), title or TITLE, self._sentences(), self.facts)

    def _repr_html_(self) -> str:
        """In a notebook: the page if the report has its trace, else the text."""
        if self._report is None or not self._report.has_trace:
            return f"<pre>{html.escape(str(self))}</pre>"
        page = self._report.page(TITLE, self._sentences(), self.facts, MOST_OF_A_CELL)
        return ('<iframe sandbox="allow-scripts" style="width: 100%; height: 900px; border: 0" '
                f'srcdoc="{html.escape(page, quote=True)}"></iframe>')

    def _sentences(self) -> list[str]:
        if refused := self.out_of_memory:
            return [f"a request of {refused['asked']} did not fit: {refused['free']} of {refused['total']} were free",
                    *self.notes]
        return self.notes

    def _with_trace(self, function: str) -> _engine.Report:
        if self._report is not None and not self._report.has_trace:
            raise UsageError(f"[{function}] expected a report with its trace, received one without; try "
                             "trace=True where the report is made")
        if self._report is None:
            raise UsageError(f"[{function}] expected a report with its trace, received a copy, or one of a "
                             "child process; try CUDA_VISIBLE_DEVICES= in the environment, where nothing "
                             "is simulated")
        return self._report

    def __str__(self) -> str:
        return self.describe()

    def __repr__(self) -> str:
        fits = "fits" if self.fits else "does not fit"
        if self.decided_by_unknown:
            fits += f", decided by {self.decided_by_unknown} unknown values"
        return f"<Report: peak {self.peak.allocated} in {self.peak.phase}, {fits}>"

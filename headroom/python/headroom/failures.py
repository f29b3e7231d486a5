"""Was it an out-of-memory? Judges an exception with all its causes, or the output of a program.
Imports no torch."""
from __future__ import annotations

import dataclasses
from typing import Iterator, Optional

from headroom import _core
from headroom.errors import UsageError
from headroom.machine import _bytes
from headroom.sizes import Bytes


@dataclasses.dataclass(frozen=True)
class Judgement:
    """The cause of a failure."""
    verdict: str  # "gpu_oom", "host_oom", "not_oom", "unknown"
    kind: str  # "cuda_caching_allocator", "cublas", "python_memoryerror", ...
    confidence: float  # 0 to 1; below 0.8 check it yourself
    evidence: str  # the line that proved it
    asked: Optional[Bytes]
    total: Optional[Bytes]
    free: Optional[Bytes]
    device: Optional[int]

    @property
    def is_oom(self) -> bool:
        return self.verdict in ("gpu_oom", "host_oom")


def classify(text: str = "", *, types: list[str] = [], exit_code: Optional[int] = None,
             signal: Optional[int] = None) -> Judgement:
    """Judges the end of a program's output, the types of its exceptions (outermost first), its exit
    code or signal, as `headroom oom classify` does."""
    found = _core.classify(text=text, types=types, exit_code=exit_code, signal=signal)
    return Judgement(found["verdict"], found["kind"], found["confidence"], found["evidence"],
                     _bytes(found["asked_bytes"]), _bytes(found["total_bytes"]),
                     _bytes(found["free_bytes"]), found["device"])


def _chain(exception: BaseException) -> Iterator[BaseException]:
    """The exception, then its causes, in the order of a traceback; groups with all their members."""
    seen: set[int] = set()
    left = [exception]
    while left:
        one = left.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        left.extend(getattr(one, "exceptions", ()))
        if one.__cause__ is not None:
            left.append(one.__cause__)
        elif one.__context__ is not None and not one.__suppress_context__:
            left.append(one.__context__)


def _type_name(exception: BaseException) -> str:
    kind = type(exception)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def classify_exception(exception: BaseException) -> Judgement:
    """The judgement of an exception, by its type, its text and those of its causes."""
    if not isinstance(exception, BaseException):
        raise UsageError(f"[is_oom] expected an exception, received '{type(exception).__name__}'; try "
                         "headroom.classify(text) for what a program printed")
    best: Optional[Judgement] = None
    for one in _chain(exception):
        name = _type_name(one)
        found = classify(f"{name}: {one}", types=[name], exit_code=1)
        if best is None or (found.is_oom and (not best.is_oom or found.confidence > best.confidence)):
            best = found
    assert best is not None
    return best


def is_oom(exception: BaseException) -> bool:
    """True if a card or the host ran out of memory, even if only a cause of the exception or its text
    says so."""
    return classify_exception(exception).is_oom

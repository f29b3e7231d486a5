# bindings/core_module.cpp
from typing import Any, Callable, Optional, Sequence

version: str
wanted_torch: str  # "2.15": the minor version that the engine was built with

def gpus(gpus: str = "") -> dict[str, Any]:
    """The document of `headroom gpus --json`."""

def select(gpus: str, need: int, count: int, order: str, timeout_s: float, interval_s: float,
           progress: Callable[[str], None]) -> dict[str, Any]:
    """`progress` is called with a sentence about once a second; what it raises ends the wait."""

def classify(text: str, types: Sequence[str], exit_code: Optional[int],
             signal: Optional[int]) -> dict[str, Any]:
    """The document of `headroom oom classify --json`."""

def size_text(size: int, /) -> str: ...
def parse_size(text: str, /) -> int: ...

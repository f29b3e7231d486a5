"""Changes to other modules that can be taken back."""
from __future__ import annotations

import functools
from typing import Any, Callable

_MISSING = object()


class Patches:
    """Attributes that were replaced, in order; `undo` restores them."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []
        self.undone = False

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replaces an attribute of a module, class or object, or adds one."""
        self._before.append((owner, name, vars(owner).get(name, _MISSING)))
        setattr(owner, name, value)

    def wrap(self, owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Replaces a function by make(function). One that this torch lacks is left out."""
        before = getattr(owner, name, None)
        if before is None:
            return
        self.set(owner, name, functools.wraps(before)(make(before)) if hasattr(before, "__name__") else
                 make(before))

    def undo(self) -> None:
        self.undone = True
        while self._before:
            owner, name, value = self._before.pop()
            if value is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, value)

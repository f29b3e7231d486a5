"""Functions that wait for a module of another package to be imported."""
from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from typing import Any, Callable


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls functions with modules that have just been imported."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Callable[[Any], Any]]] = {}
        self.looking: set[str] = set()  # programs also look for a module without importing it

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in self.waiting or name in self.looking:
            return None
        self.looking.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.looking.discard(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            for function in self.waiting.pop(name, []):
                function(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_after_import = _AfterImport()


def after_import(name: str, function: Callable[[Any], Any]) -> None:
    """Calls function(module) when the module has been imported; at once if it is there."""
    if name in sys.modules:
        function(sys.modules[name])
        return
    if _after_import not in sys.meta_path:
        sys.meta_path.insert(0, _after_import)
    _after_import.waiting.setdefault(name, []).append(function)

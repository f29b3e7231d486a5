"""Packages with kernels of their own for CUDA can be imported, whole or in parts; what they have is there by name,
as classes that cannot be made or called."""
from __future__ import annotations

import importlib
import importlib.metadata
import types
from typing import Any, Mapping, NoReturn

from headroom.errors import UnavailableError


class _Refused(type):
    """Any attribute is one of them, too; one serves as function, class, base or decorator."""

    to_try: str

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return refused(f"{cls.__module__}.{cls.__qualname__}.{name}", cls.to_try)

    def __call__(cls, *arguments: Any, **more: Any) -> NoReturn:
        name = f"{cls.__module__}.{cls.__qualname__}"
        raise UnavailableError(f"[as_cuda] {name} has kernels of its own for CUDA, which a simulated card cannot "
                               f"run; try {cls.to_try}")


def refused(name: str, to_try: str) -> Any:
    module, _, last = name.rpartition(".")
    return _Refused(last, (), {"__module__": module, "__qualname__": last, "to_try": to_try})


def fill(module: types.ModuleType, to_try: str, known: Mapping[str, Mapping[str, Any]]) -> None:
    """Gives a module the names that are known, by module, and all others."""
    def missing(name: str) -> Any:
        full = f"{module.__name__}.{name}"
        if name.startswith("_"):
            raise AttributeError(f"module '{module.__name__}' has no attribute '{name}'")
        if any(one == full or one.startswith(full + ".") for one in known):
            return importlib.import_module(full)
        made = refused(full, to_try)
        setattr(module, name, made)
        return made

    vars(module).update(known.get(module.__name__, {}), __getattr__=missing,
                        __version__=_version(module.__name__.partition(".")[0]))


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package.replace("_", "-"))
    except importlib.metadata.PackageNotFoundError:
        return "0"

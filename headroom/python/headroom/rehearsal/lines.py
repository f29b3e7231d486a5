"""The names of files in a rehearsal's answer: the script's own code, and that of an installed trainer which runs."""
from __future__ import annotations

import functools
import os
import sys
import sysconfig
import types
from typing import Any

from headroom.rehearsal import notebook

_LIBRARIES = tuple(os.path.realpath(path) + os.sep for path in {
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    os.path.dirname(os.path.dirname(os.path.realpath(__file__)))})
_LAUNCHERS = {"torch", "accelerate", "deepspeed", "lightning", "lightning_fabric", "ipykernel", "IPython", "jupyter",
              "coverage", "pytest"}
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_SCRIPTS = os.path.realpath(sysconfig.get_path("scripts")) + os.sep


def _module_that_runs() -> str:
    """The module that `python -m` runs, or from which a package's own command, as pip made it, takes its function."""
    main: Any = sys.modules["__main__"]
    if (spec := getattr(main, "__spec__", None)) is not None:
        return str(spec.name)
    if not os.path.realpath(getattr(main, "__file__", "")).startswith(_SCRIPTS):
        return ""
    return next((str(one.__module__) for one in vars(main).values() if isinstance(one, types.FunctionType)
                 and one.__module__ != "__main__"), "")


@functools.cache
def _package_that_runs() -> str:
    """The folder of an installed package, with its end, of which a module runs: a trainer's."""
    package = sys.modules.get(_module_that_runs().partition(".")[0])
    if package is None or package.__name__ in _LAUNCHERS or not hasattr(package, "__path__"):
        return ""
    folder = os.path.realpath(next(iter(package.__path__))) + os.sep
    return folder if any(one in folder for one in _INSTALLED) else ""


def _below_its_package(path: str) -> str:
    """"timm/layers/mlp.py", of a package that is not in the current folder; else the file alone."""
    top = os.path.dirname(path)
    while os.path.exists(os.path.join(top, "__init__.py")):
        top = os.path.dirname(top)
    return os.path.relpath(path, top)


def shown_file(name: str) -> str:
    """A file's name in reports; "" for a library's."""
    if cell := notebook.cell_of(name):
        return cell
    if name.startswith("<") and not name.startswith("<ipython"):
        return ""
    path = os.path.realpath(name)
    if os.path.basename(path).startswith("torch_geometric."):  # code that it generates
        return ""
    if (package := _package_that_runs()) and path.startswith(package):
        return os.path.relpath(path, os.path.dirname(os.path.dirname(package)))
    if path.startswith((*_LIBRARIES, _SCRIPTS)) or any(one in path for one in _INSTALLED):
        return ""
    short = os.path.relpath(path)
    return _below_its_package(path) if short.startswith("..") else short

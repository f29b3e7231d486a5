"""Notebooks, which `jupyter execute` runs: after the last step their cells do nothing."""
from __future__ import annotations

import sys
from typing import Any, Optional


class CellsAreDone(BaseException):
    """Raised in a cell after its last step. IPython takes SystemExit for an error of the cell."""


def shell() -> Optional[Any]:
    """IPython's, where this is a notebook's process."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


def cell_of(file: str) -> str:
    """"cell 3" for the file that IPython makes of it; else ""."""
    cells = getattr(getattr(shell(), "compile", None), "_filename_map", {})
    return f"cell {cells[file]}" if file in cells else ""


def install() -> None:
    notebook = shell()
    if notebook is None:
        return
    run, show = notebook.run_code, notebook.showtraceback
    done = False

    async def run_code(code: Any, result: Any = None, **more: Any) -> Any:
        nonlocal done
        if done:
            return False
        failed = await run(code, result, **more)
        if result is not None and isinstance(result.error_in_exec, CellsAreDone):
            done, failed, result.error_in_exec = True, False, None
        return failed

    def showtraceback(*arguments: Any, **more: Any) -> None:
        if not isinstance(sys.exc_info()[1], CellsAreDone):
            show(*arguments, **more)

    notebook.run_code, notebook.showtraceback = run_code, showtraceback

"""A rehearsal: a training script that `headroom rehearse` started runs, unchanged, on simulated cards.

`site/sitecustomize.py` calls start() when the script has imported torch. `watch.py` sees its models and
steps, `lines.py` names its files, `user_files.py` keeps its files as they are, `launchers.py` understands torchrun and its kin, and
`report.py` writes what came out."""
from __future__ import annotations

import os
import sys

from headroom.rehearsal.orders import VARIABLE, Orders

UNAVAILABLE = 69  # the command's exit codes


def start() -> None:
    """Once a process, right after `import torch`. Ends the process if torch is one that cannot be used."""
    orders = Orders.of_environment()
    if orders is None:
        return
    try:
        from headroom.rehearsal import process
    except ImportError as error:
        _give_up(f"the headroom of {os.path.dirname(os.path.dirname(__file__))} does not fit the Python of this "
                 f"program, {sys.version.split()[0]} ({error}); try pip install headroom there")
    from headroom.errors import Error
    try:
        process.begin(orders)
    except Error as error:
        _give_up(str(error))


def _give_up(why: str) -> None:
    print(f"headroom rehearse: {why}", file=sys.stderr, flush=True)
    os._exit(UNAVAILABLE)


__all__ = ["Orders", "VARIABLE", "start"]

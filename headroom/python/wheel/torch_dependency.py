"""What the wheel depends on: the minor version of the torch that the engine is built with, which is the
one of the environment that pip installs into, or that HEADROOM_TORCH names."""
from __future__ import annotations

import os
import pathlib
import re
import sysconfig
from typing import Any


def torch_folder() -> pathlib.Path:
    named = os.environ.get("HEADROOM_TORCH")
    return pathlib.Path(named) if named else pathlib.Path(sysconfig.get_paths()["platlib"]) / "torch"


def dynamic_metadata(field: str, settings: dict[str, Any], *_: Any) -> list[str]:
    file = torch_folder() / "version.py"
    if not file.exists():
        raise RuntimeError(f"headroom is built for the torch that is installed, and {file.parent} has none; "
                           "pip install torch first, or set HEADROOM_TORCH to its folder")
    found = re.search(r"(\d+\.\d+)\.\d+", file.read_text())
    assert found, f"no version in {file}"
    return [f"torch=={found[1]}.*"]

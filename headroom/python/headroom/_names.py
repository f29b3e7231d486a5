"""Names that scripts look for and that this package does not have: `headroom.guard`, `import headroom.guard` and
`from headroom import guard` all answer with the way that exists."""
from __future__ import annotations

import difflib
import importlib.abc
import importlib.machinery
import types
from typing import Any, Iterable, Optional, Sequence

_FROM_ITS_START = "headroom.OomHandler and headroom.retry_on_oom, which run a function again from its start"
_UNDONE = ("a training step in Python that is undone and run again after an out-of-memory does not exist yet; "
           f"try {_FROM_ITS_START}, or `headroom run -- python train.py`, which starts the program again "
           "with a smaller batch")
_IN_CPP = ("it is in the C++ library (headroom/train/step.h), and on the command line as `headroom train`; in Python "
           f"try {_FROM_ITS_START}")
_ELSEWHERE = {
    **dict.fromkeys(("guard", "Guard", "protect", "protected", "oom_guard", "OOMGuard", "OomGuard", "lossless"),
                    _UNDONE),
    **dict.fromkeys(("Step", "Trainer", "Plan", "Ladder", "train"), _IN_CPP),
    "spill": "it does not exist yet; try headroom.find_max_batch_size for a batch that fits",
    "rehearse": "it is a command: headroom rehearse -- python train.py; in a program try headroom.as_cuda(\"H100\")",
    **dict.fromkeys(("OutOfMemoryError", "OOMError", "OomError"),
                    "an out-of-memory keeps PyTorch's type; try torch.OutOfMemoryError, or headroom.is_oom(error), "
                    "which also knows cuBLAS's, cuDNN's and the host's"),
}


def why_not(name: str, known: Iterable[str]) -> str:
    """The message for a name that the package does not have."""
    text = f"module 'headroom' has no attribute '{name}'"
    if name in _ELSEWHERE:
        return f"{text}: {_ELSEWHERE[name]}"
    near = difflib.get_close_matches(name.lower(), [one.lower() for one in known], 1, 0.75)
    return text + "".join(f"; try headroom.{one}" for one in known if one.lower() in near)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Comes last, for modules that no other finder found."""

    def find_spec(self, name: str, path: Optional[Sequence[str]] = None,
                  target: Optional[types.ModuleType] = None) -> Optional[importlib.machinery.ModuleSpec]:
        package, _, last = name.rpartition(".")
        if package != "headroom" or last not in _ELSEWHERE:
            return None
        return importlib.machinery.ModuleSpec(name, self)

    def exec_module(self, module: Any) -> None:
        name = module.__name__.rpartition(".")[2]
        raise ImportError(f"headroom has no '{name}': {_ELSEWHERE[name]}", name=module.__name__)

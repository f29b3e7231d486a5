"""Programs that ask for CUDA run on simulated cards, unchanged.

    with headroom.as_cuda("2xH100"):
        model = Net().cuda()                     # on a simulated H100
        torch.cuda.max_memory_allocated()

`devices.py` bends tensors, storages and generators, `cuda_module.py` puts `answers.py` into torch.cuda by
the table in `names.py`, `groups.py` bends torch.distributed, and `foreign.py` other packages."""
from __future__ import annotations

from types import TracebackType
from typing import Optional

import torch

from headroom import _engine
from headroom.errors import UnavailableError, UsageError
from headroom.masquerade import cuda_module, devices, foreign, groups
from headroom.patches import Patches
from headroom.simulation import Simulation, simulate

_living: Optional[AsCuda] = None


class AsCuda:
    """Cards that a program takes for CUDA's, until `end()` or the end of a `with`. Then its tensors lose
    their data."""

    def __init__(self, box: Simulation, pretend_ranks: bool = False) -> None:
        global _living
        self.box = box
        box.is_cuda = True
        self._patches = Patches()
        self._in_libtorch = _engine.CudaMeansSim()
        _living = self
        try:
            devices.install(self._patches)
            if box[0].rules == "cpu":
                devices.take_the_cpus_optimizers(self._patches)
            cuda_module.install(self._patches)
            groups.install(self._patches, pretend_ranks)
            foreign.install(self._patches)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Takes everything back; torch is as before."""
        global _living
        if _living is not self:
            return
        _living = None
        self._patches.undo()
        self._in_libtorch.end()
        self.box.end()

    def __enter__(self) -> Simulation:
        return self.box

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.end()


def as_cuda(spec: str, mode: str = "shape-only", *, rules: str = "cuda", settings: Optional[str] = None,
            assume: Optional[float] = 0.5, pretend_ranks: bool = False) -> AsCuda:
    """Makes a box of simulated cards (as `simulate` does) that this process takes for CUDA's.

    mode: "shape-only" - tensors have no data, unknown values read as zero - or "compute".
    rules, assume: as for `simulate`.
    pretend_ranks: init_process_group starts none of the other ranks that it is told of, and waits for none.

    CUDA must not have started in this process, and cannot start in it any more."""
    if torch.cuda.is_initialized() and _living is None:
        raise UnavailableError("[as_cuda] expected a process that has not used CUDA, received one that has; try "
                               "it first in a new process (a notebook: restart the kernel), or headroom rehearse")
    if _living is not None:
        raise UsageError("[as_cuda] expected one at a time, received a second one; try ending the first, by its "
                         "`with` or its end()")
    return AsCuda(simulate(spec, mode=mode, rules=rules, settings=settings, assume=assume), pretend_ranks)

"""Predicts and guards the GPU memory of deep-learning training.

    import headroom

    headroom.gpus()                                          # the cards and their processes
    headroom.estimate(model, batch, gpu="RTX 4090").fits     # before it runs
    headroom.find_max_batch_size(model, make_batch, gpu="RTX 4090")
    box = headroom.simulate("8x24GiB")                       # devices sim:0 to sim:7
    with headroom.as_cuda("2xH100"): ...                     # what asks for CUDA runs on such cards
    with headroom.GpuMemoryScope("forward") as scope: ...
    with headroom.profile() as profile: ...                  # by operator and by module
    headroom.recipe(model="gpt-tiny").step()                 # what `headroom train` trains, step by step
    headroom.spill()                         # what a card refuses to hold waits on the host
    headroom.is_oom(error)
    headroom.OomHandler().run(train_epoch)                   # again from its start, with half the batch

Names that need torch import it when they are first used; `gpus`, `select_gpus`, `classify` and
`is_oom` never do.
"""
from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from headroom import _core, _names
from headroom.errors import (BusyError, Error, InputError, UnavailableError, UsageError,
                             WriteError)
from headroom.failures import Judgement, classify, classify_exception, is_oom
from headroom.machine import (Gpu, GpuProcess, Picked, find_best_device, gpus, select_gpus,
                              wait_for_gpu)
from headroom.recovery import OomHandler, adaptive_batch_training, retry_on_oom
from headroom.sizes import Bytes

if TYPE_CHECKING:
    from headroom.card import Card, card_of
    from headroom.estimates import (MaxBatch, dry_run, estimate, estimate_training_memory,
                                    find_max_batch_size, get_optimal_batch_size)
    from headroom.familiar import (GPUMemoryContext, OOMHandler, clear_gpu_cache, find_executable_batch_size,
                                   get_gpu_info, get_memory_snapshot, print_gpu_memory)
    from headroom.masquerade import AsCuda, as_cuda
    from headroom.memory import (Cleared, CountCpuMemory, GpuMemoryScope, GpuMemoryStats,
                                 GpuMemoryUse, clear_gpu_memory, get_gpu_memory_stats,
                                 log_gpu_memory_stats, memory_summary, record_history,
                                 reset_peak_memory_stats)
    from headroom.plans import Plan, plan
    from headroom.profiling import ProfileRow, profile
    from headroom.ranks import pretend_ranks
    from headroom.recipes import Recipe, recipe
    from headroom.reports import Report
    from headroom.simulation import Simulation, simulate
    from headroom.spilling import Spill, spill

__version__: str = _core.version

# The names that need torch, and their modules.
_WITH_TORCH = {
    **dict.fromkeys(("Card", "card_of"), "card"),
    **dict.fromkeys(("MaxBatch", "dry_run", "estimate", "estimate_training_memory",
                     "find_max_batch_size", "get_optimal_batch_size"), "estimates"),
    **dict.fromkeys(("GPUMemoryContext", "OOMHandler", "clear_gpu_cache", "find_executable_batch_size",
                     "get_gpu_info", "get_memory_snapshot", "print_gpu_memory"), "familiar"),
    **dict.fromkeys(("Cleared", "CountCpuMemory", "GpuMemoryScope", "GpuMemoryStats",
                     "GpuMemoryUse", "clear_gpu_memory", "get_gpu_memory_stats",
                     "log_gpu_memory_stats", "memory_summary", "record_history",
                     "reset_peak_memory_stats"), "memory"),
    **dict.fromkeys(("AsCuda", "as_cuda"), "masquerade"),
    **dict.fromkeys(("Plan", "plan"), "plans"),
    **dict.fromkeys(("ProfileRow", "profile"), "profiling"),
    "pretend_ranks": "ranks",
    **dict.fromkeys(("Recipe", "recipe"), "recipes"),
    "Report": "reports",
    **dict.fromkeys(("Simulation", "simulate"), "simulation"),
    **dict.fromkeys(("Spill", "spill"), "spilling"),
}

__all__ = ["BusyError", "Bytes", "Error", "Gpu", "GpuProcess", "InputError", "Judgement", "OomHandler", "Picked",
           "UnavailableError", "UsageError", "WriteError", "adaptive_batch_training", "classify",
           "classify_exception", "find_best_device", "gpus", "is_oom", "retry_on_oom", "select_gpus",
           "wait_for_gpu", *_WITH_TORCH]

sys.meta_path.append(_names.Finder())


def __getattr__(name: str) -> Any:
    if name not in _WITH_TORCH:
        raise AttributeError(_names.why_not(name, __all__))
    value = getattr(importlib.import_module(f"headroom.{_WITH_TORCH[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})

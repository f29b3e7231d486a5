"""Launchers of many ranks - torchrun, accelerate launch, torch.multiprocessing.spawn - start one in a rehearsal:
the others would do the same, and are pretended."""
from __future__ import annotations

import os
import sys
from typing import Any, Callable

import torch

from headroom.imports import after_import
from headroom.masquerade.foreign import say_once
from headroom.rehearsal.orders import Orders


def install(orders: Orders) -> None:
    if orders.all_ranks:
        return
    after_import("torch.distributed.launcher.api", lambda api: _of_elastic(orders, api))
    torch.multiprocessing.spawn = _spawn


def _environment(world: int, local: int) -> dict[str, str]:
    return {"RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0", "ROLE_RANK": "0", "WORLD_SIZE": str(world),
            "LOCAL_WORLD_SIZE": str(local), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
            "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_RUN_ID": "rehearsal"}


def _say_if_too_many(processes: int) -> None:
    cards = torch.cuda.device_count()
    if processes > cards:
        say_once(f"{processes} processes for {cards} card{'s' * (cards != 1)}: on a real machine they share it, or are "
                 "refused; try more --gpus")


def _of_elastic(orders: Orders, api: Any) -> None:
    """torchrun and accelerate launch come to launch_agent with a configuration of theirs."""
    def launch_agent(config: Any, entrypoint: Any, arguments: list[Any], **more: Any) -> Any:
        local = config.nproc_per_node
        world = orders.ranks or local * config.max_nodes
        _say_if_too_many(local)
        if world > 1:
            say_once(f"one rank of {world} is rehearsed; the others are pretended (--all-ranks starts them)")
        os.environ.update(_environment(world, local))
        if callable(entrypoint):
            return {0: entrypoint(*arguments)}
        sys.stdout.flush()
        os.execvp(entrypoint, [entrypoint, *arguments])

    api.launch_agent = launch_agent


def _spawn(function: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True,
           daemon: bool = False, start_method: str = "spawn") -> Any:
    """In place of torch.multiprocessing.spawn: the first process's work, in this one."""
    if nprocs > 1:
        _say_if_too_many(nprocs)
        say_once(f"one process of {nprocs} is rehearsed; the others are pretended (--all-ranks starts them)")
    os.environ.setdefault("WORLD_SIZE", str(nprocs))
    function(0, *args)
    return None

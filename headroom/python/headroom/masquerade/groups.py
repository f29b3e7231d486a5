"""torch.distributed: "nccl" means the backend of simulated cards. In a pretended world this process alone is
one of its ranks."""
from __future__ import annotations

import os
import sys
from typing import Any, Callable

import torch
import torch.distributed as dist

from headroom.masquerade.devices import real
from headroom.patches import Patches


def install(patches: Patches, pretends: bool) -> None:
    if not dist.is_available():
        return

    def backend(name: Any) -> Any:
        """A backend's name, "nccl" or "cpu:gloo,cuda:nccl", as this process has it."""
        if pretends:
            return "pretend"
        if name is None:
            return "cpu:gloo,sim:sim"
        return ",".join(part.replace("cuda", "sim").replace("nccl", "sim")
                        for part in str(name).lower().split(","))

    def with_backend(function: Callable[..., Any], position: int) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            given = list(arguments)
            if len(given) > position:
                given[position] = backend(given[position])
            elif function.__name__ == "init_process_group" or named.get("backend") is not None:
                named["backend"] = backend(named.get("backend"))
            if "device_id" in named:
                named["device_id"] = real(named["device_id"])
            for options in ("pg_options", "backend_options"):
                named.pop(options, None)  # NCCL's, which no other backend takes
            if pretends and function.__name__ == "init_process_group":
                return _join_pretended(function, named)
            return function(*given, **named)
        return called

    get_backend = dist.get_backend
    for function, replacement in ((dist.init_process_group, with_backend(dist.init_process_group, 0)),
                                  (dist.new_group, with_backend(dist.new_group, 2)),
                                  (dist.is_nccl_available, lambda: True),
                                  (get_backend, lambda *group: _shown(get_backend(*group)))):
        _everywhere(patches, function, replacement)
    patches.wrap(dist.ProcessGroup, "_get_backend",
                 lambda function: lambda self, device: function(self, real(torch.device(device))))
    patches.set(dist.Backend, "default_device_backend_map",
                {**dist.Backend.default_device_backend_map, "cuda": "sim"})


def _everywhere(patches: Patches, function: Callable[..., Any], replacement: Callable[..., Any]) -> None:
    """In all modules of torch.distributed that took a function by its name."""
    for module in [one for name, one in sys.modules.items() if name.startswith("torch.distributed")]:
        for name in [name for name, value in vars(module).items() if value is function]:
            patches.set(module, name, replacement)


def _join_pretended(function: Callable[..., Any], named: dict[str, Any]) -> Any:
    """The number of ranks is the one that the script gives, or its launcher."""
    def number(name: str, variable: str, otherwise: int) -> int:
        given = named.get(name, -1)
        return int(os.environ.get(variable, otherwise)) if given is None or given < 0 else given

    return function("pretend", store=dist.HashStore(), rank=number("rank", "RANK", 0),
                    world_size=number("world_size", "WORLD_SIZE", 1))


def _shown(name: str) -> str:
    return {"sim": "nccl", "pretend": "nccl"}.get(name, name)

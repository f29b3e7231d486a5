"""AdamW with states of 8 bits, with the memory of bitsandbytes.optim.AdamW8bit (0.50, optim/optimizer.py): a byte
for each element of both moments, a float for each block of 256, and a table of the numbers that the bytes mean.
Parameters of less than 4096 elements have moments of floats. One kernel steps in place."""
from __future__ import annotations

from typing import Any, Optional

import torch

BLOCK, LEAST = 256, 4096
whole: set[int] = set()  # ids of parameters whose moments are floats whatever their size


class AdamW8bit(torch.optim.Optimizer):
    def __init__(self, params: Any, lr: float = 1e-3, betas: Any = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2, *unused: Any, least: Optional[int] = LEAST, **more: Any) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.least = least  # None: all moments are floats

    def step(self, closure: Any = None) -> Any:
        return step(self, closure)


@torch.no_grad()
def step(optimizer: torch.optim.Optimizer, closure: Any = None) -> Any:
    """The memory of a step, whatever class the optimizer has; the parameters follow the gradient."""
    loss = None
    if closure is not None:
        with torch.enable_grad():
            loss = closure()
    for group in optimizer.param_groups:
        for one in group["params"]:
            if one.grad is None:
                continue
            if not optimizer.state[one]:
                optimizer.state[one].update(_states(optimizer, one))
            one.data, one.grad = one.data.contiguous(), one.grad.contiguous()
            one.add_(one.grad, alpha=-float(group["lr"]))
    return loss


def _states(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> dict[str, torch.Tensor]:
    least = getattr(optimizer, "least", LEAST)
    if least is None or parameter.numel() < least or id(parameter) in whole:
        return {name: torch.zeros_like(parameter, dtype=torch.float32) for name in ("state1", "state2")}
    tables = vars(optimizer).setdefault("_tables", {})
    for name in ("qmap1", "qmap2"):
        if (parameter.device, name) not in tables:
            tables[parameter.device, name] = torch.zeros(BLOCK, device=parameter.device)
    blocks = -(-parameter.numel() // BLOCK)
    return {"state1": torch.zeros_like(parameter, dtype=torch.uint8),
            "state2": torch.zeros_like(parameter, dtype=torch.uint8),
            "absmax1": torch.zeros(blocks, device=parameter.device),
            "absmax2": torch.zeros(blocks, device=parameter.device)}

"""What `--advice` tries: changes that can be switched on from outside the script.

Each does what its sentence in headroom/rehearse/advice.h asks of the user, so that the figures are those of a
script with that change in its source (tests/rehearse/advice_test.py)."""
from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
import threading
import types
from typing import Any, Callable, ContextManager, Optional

import torch
from torch import nn
from torch.optim import optimizer as of_optimizers
from torch.utils.checkpoint import checkpoint

from headroom import eight_bit
from headroom.imports import after_import


class Change:
    """None, and the base of the others."""

    made = False  # of something: else the script has nothing to change

    def begin(self, models: list[nn.Module]) -> None:
        """Before the first step, with the models that are trained."""

    def around(self, is_trained: Callable[[], bool]) -> ContextManager[Any]:
        """Around a call of a module that no other module makes."""
        return contextlib.nullcontext()


def named(name: Optional[str], device_type: str = "cuda") -> Change:
    if name == "bf16-autocast":
        return Autocast(device_type)
    kinds: dict[Optional[str], type[Change]] = {
        None: Change, "checkpointing": Checkpointing, "fused-optimizer": Fused, "8-bit-adamw": EightBit, "half-micro-batch": HalfBatch}
    return kinds[name]()


def around_calls(change: Change) -> None:
    """For a step that nothing watches: each call that no module makes is of a trained one."""
    before, inside = nn.Module.__call__, threading.local()

    @functools.wraps(before)
    def call(module: nn.Module, *arguments: Any, **more: Any) -> Any:
        if getattr(inside, "now", False):
            return before(module, *arguments, **more)
        inside.now = True
        try:
            with change.around(lambda: True):
                return before(module, *arguments, **more)
        finally:
            inside.now = False

    nn.Module.__call__ = call  # type: ignore[method-assign]


class Checkpointing(Change):
    """By the model's own switch, else its blocks: the longest list of modules of one kind."""

    def begin(self, models: list[nn.Module]) -> None:
        for model in models:
            own = [one for one in model.modules() if hasattr(one, "gradient_checkpointing_enable")]
            if own and getattr(own[0], "supports_gradient_checkpointing", True):
                own[0].gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
                self.made = True
                continue
            for block in max(_lists_of_blocks(model), key=len, default=[]):
                block.forward = functools.wraps(block.forward)(  # type: ignore[method-assign]
                    functools.partial(checkpoint, block.forward, use_reentrant=False))
                self.made = True


def _lists_of_blocks(model: nn.Module) -> list[list[nn.Module]]:
    return [list(one) for one in model.modules() if isinstance(one, (nn.ModuleList, nn.Sequential)) and
            len(one) > 1 and len({type(part) for part in one}) == 1 and next(one.parameters(), None) is not None]


class Autocast(Change):
    """Forward and loss: from a call of a trained model until the backward pass. Without a graph, the call alone."""

    def __init__(self, device_type: str) -> None:
        self._device_type = device_type
        self._open: Optional[torch.autocast] = None
        # accelerate, and by it transformers' Trainer, has its own way, which also makes results float32.
        os.environ.setdefault("ACCELERATE_MIXED_PRECISION", "bf16")
        for name in ("backward", "grad"):
            setattr(torch.autograd, name, self._without(getattr(torch.autograd, name)))
        of_optimizers.register_optimizer_step_pre_hook(lambda *step: self._close())

    def around(self, is_trained: Callable[[], bool]) -> ContextManager[Any]:
        if torch._C._current_graph_task_id() != -1 or torch.is_autocast_enabled(self._device_type):
            return contextlib.nullcontext()
        if _accelerate_casts():
            self.made = True
            return contextlib.nullcontext()
        if not is_trained():
            return contextlib.nullcontext()
        self.made = True
        autocast = torch.autocast(self._device_type, torch.bfloat16)
        if not torch.is_grad_enabled():
            return autocast
        self._open = autocast
        autocast.__enter__()
        return contextlib.nullcontext()

    def _close(self) -> None:
        if self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = None

    def _without(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def called(*arguments: Any, **more: Any) -> Any:
            self._close()
            return function(*arguments, **more)
        return called


def _accelerate_casts() -> bool:
    state = sys.modules.get("accelerate.state")
    shared = getattr(getattr(state, "AcceleratorState", None), "_shared_state", {})
    return shared.get("_mixed_precision", "no") != "no"


class Fused(Change):
    def __init__(self) -> None:
        for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD):
            kind.__init__ = self._fused(kind.__init__)  # type: ignore[method-assign]

    def _fused(self, init: Any) -> Any:
        signature = inspect.signature(init)

        @functools.wraps(init)
        def made(*arguments: Any, **more: Any) -> None:
            given = signature.bind(*arguments, **more).arguments
            if not given.get("fused"):
                given.update(fused=True, foreach=None)
                self.made = True
            init(**given)
        return made


class EightBit(Change):
    """AdamW and Adam as bitsandbytes.optim.AdamW8bit and Adam8bit."""

    def __init__(self) -> None:
        def step(optimizer: torch.optim.Optimizer, closure: Any = None) -> Any:
            self.made = True
            return eight_bit.step(optimizer, closure)

        for kind in (torch.optim.Adam, torch.optim.AdamW):
            kind.__init__ = _in_python(kind.__init__)  # type: ignore[method-assign]
            kind.step = step  # type: ignore[method-assign]


def _in_python(init: Any) -> Any:
    """Without what a GradScaler leaves to torch's fused kernels."""
    signature = inspect.signature(init)

    @functools.wraps(init)
    def made(*arguments: Any, **more: Any) -> None:
        init(**{**signature.bind(*arguments, **more).arguments, "fused": None, "foreach": None})
    return made


class HalfBatch(Change):
    """Each batch of a training's DataLoader has half its rows, and the optimizer steps after every second one."""

    def __init__(self) -> None:
        self._of_trainer = False  # transformers' Trainer has arguments for it
        self._optimizers = 0
        self._waits = self._steps = False  # between the two halves; inside a GradScaler's step
        after_import("transformers.training_args", self._change_trainer)
        for owner, name, wrap in ((torch.utils.data.DataLoader, "__iter__", self._halved),
                                  (torch.optim.Optimizer, "__init__", self._noted),
                                  (nn.Module, "zero_grad", self._after_the_second),
                                  (torch.amp.grad_scaler.GradScaler, "step", self._every_second),
                                  (torch.amp.grad_scaler.GradScaler, "unscale_", self._before_the_second),
                                  (torch.amp.grad_scaler.GradScaler, "update", self._after_the_second)):
            setattr(owner, name, wrap(getattr(owner, name)))

    def _change_trainer(self, module: Any) -> None:
        before = module.TrainingArguments.__post_init__

        def halve(arguments: Any) -> None:
            if arguments.per_device_train_batch_size > 1:
                arguments.per_device_train_batch_size //= 2
                arguments.gradient_accumulation_steps *= 2
                self.made = self._of_trainer = True
            before(arguments)

        module.TrainingArguments.__post_init__ = halve

    def _halved(self, iterate: Any) -> Any:
        @functools.wraps(iterate)
        def halved(loader: Any) -> Any:
            sampler, draws = loader.batch_sampler, not isinstance(loader.sampler, torch.utils.data.SequentialSampler)
            if type(sampler) is torch.utils.data.BatchSampler and sampler.batch_size > 1 and \
                    not hasattr(sampler, "was_halved") and (draws or not self.made) and \
                    self._optimizers == 1 and not self._of_trainer and torch.is_grad_enabled():
                sampler.was_halved = self.made = True
                sampler.batch_size //= 2
            return iterate(loader)
        return halved

    def _noted(self, init: Any) -> Any:
        @functools.wraps(init)
        def noted(optimizer: torch.optim.Optimizer, *arguments: Any, **more: Any) -> None:
            init(optimizer, *arguments, **more)
            self._optimizers += 1
            for name, wrap in (("step", self._every_second), ("zero_grad", self._after_the_second)):
                # A method, as schedulers look for its __func__.
                setattr(optimizer, name, types.MethodType(wrap(getattr(type(optimizer), name)), optimizer))
        return noted

    def _every_second(self, step: Any) -> Any:
        """Of an optimizer, or of a GradScaler, which calls the optimizer's."""
        @functools.wraps(step)
        def stepped(owner: Any, *arguments: Any, **more: Any) -> Any:
            if not self.made or self._of_trainer or self._steps:
                return step(owner, *arguments, **more)
            self._waits = not self._waits
            if self._waits:
                return _only_the_closure(*arguments, **more)
            self._steps = True
            try:
                return step(owner, *arguments, **more)
            finally:
                self._steps = False
        return stepped

    def _after_the_second(self, function: Any) -> Any:
        return _if(function, lambda: not self._waits)

    def _before_the_second(self, function: Any) -> Any:
        return _if(function, lambda: self._waits or not self.made or self._of_trainer)


def _if(function: Any, holds: Callable[[], bool]) -> Any:
    @functools.wraps(function)
    def called(*arguments: Any, **more: Any) -> Any:
        return function(*arguments, **more) if holds() else None
    return called


def _only_the_closure(*arguments: Any, **more: Any) -> Any:
    """Of a step that is left out: some programs run the whole pass in it."""
    closure = more.get("closure", arguments[0] if arguments else None)
    if not callable(closure):
        return None
    with torch.enable_grad():
        return closure()

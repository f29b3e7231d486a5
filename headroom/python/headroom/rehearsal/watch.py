"""Sees the models and the steps of a script that knows nothing of it.

A step ends when an optimizer has stepped. The first begins when a model is called; what comes before is `init`.
A script that trains without an optimizer ends after so many backward passes. Of several optimizers (a GAN's) each
takes part in a step: it ends with the step of the last."""
from __future__ import annotations

import collections
import functools
import sys
import threading
import weakref
from typing import Any, Callable, Iterator, Optional

import torch
from torch import nn
from torch.optim import optimizer as of_optimizers

from headroom import _engine, bitsandbytes_kernels
from headroom.card import lies_on_card
from headroom.profiling import numbered
from headroom.rehearsal import buckets, changes
from headroom.rehearsal.lines import shown_file
from headroom.simulation import Simulation

MANY_READS = 1000  # of unknown values between two questions, without a step
MOST_PASSES = 100  # backward passes before the first optimizer: warming up, or a search for the batch

Named = list[tuple[str, torch.Tensor]]

_OF_WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_forward_module.", "_original_module.")


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a sharded tensor that this process has."""
    return getattr(tensor, "_local_tensor", tensor)


class Watch:
    def __init__(self, box: Simulation, steps: int, on_begin: Callable[[], Any], stop: Callable[[], Any],
                 change: Optional[str] = None) -> None:
        self.steps, self.on_begin, self.stop = steps, on_begin, stop
        self.change = changes.named(change)
        self.began = False
        self.step = 1
        self.ended = 0  # steps
        self.observations = [_engine.Observation(card._card, shown_file) for card in box]
        self._cards = list(box)
        self._modules: dict[int, weakref.ref[nn.Module]] = {}  # some cannot be hashed before they are made
        self._names: dict[int, str] = {}  # of modules
        self._owners: dict[int, str] = {}  # names of parameters
        self._counts: dict[int, int] = {}  # steps by optimizer
        self._optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._running: list[int] = []
        self._in_train = False
        self.parameters = 0  # numbers
        self._trained = {False: 0, True: 0}  # those that may be trained; those that an optimizer has stepped
        self._inside = False  # of a call of a module
        self._forwards = [0, 0]  # such calls of this step: without a graph, with one
        self.convolves = False
        self._reads = (0, 0)  # steps that had ended, values read as zero
        self.passes = 0  # backward passes without an optimizer
        self.was_stopped_after_passes = False
        self._note_modules()
        self._note_optimizers()
        self._note_backward()
        self._note_evaluation()
        self._note_calls()
        buckets.install(self._know_gradients)

    def used(self) -> bool:
        return any(card._card.requests for card in self._cards)

    def waits(self) -> str:
        """The line of the script that runs now, if it does nothing but read unknown values; else "". Ask every
        some seconds."""
        reads = sum(card._card.values_read_as_zero for card in self._cards)
        before, self._reads = self._reads, (self.ended, reads)
        if before[0] != self.ended or reads - before[1] < MANY_READS:
            return ""
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        while frame is not None and not shown_file(frame.f_code.co_filename):
            frame = frame.f_back
        return f"{shown_file(frame.f_code.co_filename)}:{frame.f_lineno}" if frame is not None else ""

    # ---- Models

    def _note_modules(self) -> None:
        """Every module passes one of these when it is made, copied or unpickled."""
        known, names = self._modules, self._names

        def note(module: nn.Module) -> None:
            number = id(module)
            known[number] = weakref.ref(module, lambda _: (known.pop(number, None), names.pop(number, None)))

        for name in ("__init__", "__setstate__"):
            def noting(self: nn.Module, *arguments: Any, _before: Any = getattr(nn.Module, name),
                       **more: Any) -> None:
                _before(self, *arguments, **more)
                note(self)
            setattr(nn.Module, name, noting)

    def roots(self) -> list[nn.Module]:
        """The modules that are no part of another and have tensors."""
        modules = [one for one in (ref() for ref in list(self._modules.values())) if one is not None]
        parts = {id(part) for one in modules for part in one._modules.values()}
        return [one for one in modules if id(one) not in parts and
                next(_tensors(one), None) is not None]

    def prefixed_roots(self) -> list[tuple[str, nn.Module]]:
        """Of several models each name begins with the model's class, from the second of a class on with its number:
        "Sequential.0", "Sequential#2.0"."""
        roots = self.roots()
        classes: collections.Counter[str] = collections.Counter()
        return [(f"{numbered(type(root).__name__, classes)}." if len(roots) > 1 else "", root) for root in roots]

    def named(self) -> tuple[Named, Named]:
        """All parameters and buffers on cards."""
        parameters: Named = []
        buffers: Named = []
        for prefix, root in self.prefixed_roots():
            for made, found in ((parameters, root.named_parameters(remove_duplicate=False)),
                                (buffers, root.named_buffers(remove_duplicate=False))):
                made += [(prefix + _plain(name), _local(one)) for name, one in found if lies_on_card(_local(one))]
            parameters += [(f"{prefix}{_plain(path + '.')}{name}", one) for path, part in root.named_modules()
                           for name, one in bitsandbytes_kernels.beside_the_weight(part) if lies_on_card(one)]
        return parameters, buffers

    def _know_sharded_gradients(self) -> None:
        """A shard is no parameter to LibTorch, and has no gradient."""
        gradients = [(_plain(name), _local(one.grad)) for root in self.roots() for name, one in root.named_parameters()
                     if one.grad is not None and _local(one) is not one]
        if gradients:
            self._know_gradients(gradients)

    def _know_gradients(self, gradients: Named) -> None:
        for observation in self.observations:
            observation.know_gradients(gradients)

    def count(self) -> None:
        """Of the models that are on cards now: at the end of a script they may be gone."""
        models = self.roots()
        there = {id(one): one for root in models for one in root.parameters() if lies_on_card(_local(one))}
        stepped = [one for one in self._optimizers if self._counts.get(id(one))]
        trained = {id(one): one for optimizer in stepped or self._optimizers for group in optimizer.param_groups
                   for one in group["params"] if one.requires_grad}
        if not self._optimizers:
            trained = {key: one for key, one in there.items() if one.requires_grad}
        self.parameters = max(self.parameters, _numbers({**there, **trained} if stepped else there))
        self._trained[bool(stepped)] = max(self._trained[bool(stepped)], _numbers(trained))
        self.convolves |= any(isinstance(part, nn.modules.conv._ConvNd) for root in models for part in root.modules())

    @property
    def trainable(self) -> int:
        return self._trained[True] or self._trained[False]

    def know(self) -> None:
        self.count()
        parameters, buffers = self.named()
        for prefix, root in self.prefixed_roots():
            for name, part in root.named_modules():
                self._names[id(part)] = (prefix + _plain(name and name + ".")).removesuffix(".")
        self._owners = {id(one): name for name, one in reversed(parameters)}
        for observation in self.observations:
            observation.know(parameters, buffers, list(set(self._names.values())))

    def _note_calls(self) -> None:
        """Each call of a module; and of these, the ones that no other module makes."""
        before, watch = nn.Module.__call__, self

        def named(module: nn.Module, *arguments: Any, **more: Any) -> Any:
            if (name := watch._names.get(id(module))) is None:
                return before(module, *arguments, **more)
            _engine.enter_module(name)
            try:
                return before(module, *arguments, **more)
            finally:
                _engine.leave_module()

        @functools.wraps(before)
        def call(module: nn.Module, *arguments: Any, **more: Any) -> Any:
            if watch._inside:
                return named(module, *arguments, **more)
            watch._inside = True
            try:
                watch._called(module, (*arguments, *more.values()))
                with watch.change.around(lambda: not watch._optimizers or watch._is_trained(module)):
                    return named(module, *arguments, **more)
            finally:
                watch._inside = False

        nn.Module.__call__ = call  # type: ignore[method-assign]

    def _called(self, module: nn.Module, arguments: Any) -> None:
        self._forwards[torch.is_grad_enabled()] += 1
        if not self.began and (any(lies_on_card(_local(one)) for one in _tensors(module)) or any(
                isinstance(one, torch.Tensor) and lies_on_card(one) for one in arguments)):
            self._begin()

    def progress(self) -> str:
        """Of a step that takes long: "still in step 1: 1,024 forward passes under no_grad"."""
        where = f"in step {self.step}" if self.began else "before the first step"
        counts = [f"{count:,} forward pass{'es' * (count != 1)}{after}"
                  for count, after in zip(self._forwards, (" under no_grad", " with a graph")) if count]
        return f"still {where}" + (": " + ", ".join(counts) if counts else "")

    def _note_evaluation(self) -> None:
        """Scripts call train(False), or eval(), of the model that they train."""
        before, watch = nn.Module.train, self

        def train(self: nn.Module, mode: bool = True) -> nn.Module:
            outermost, watch._in_train = not watch._in_train, True
            try:
                return before(self, mode)
            finally:
                if outermost:
                    watch._in_train = False
                    if watch.began and watch._is_trained(self):
                        watch._evaluate(not mode)

        nn.Module.train = train  # type: ignore[method-assign]

    def _is_trained(self, module: nn.Module) -> bool:
        trained = {id(_local(one)) for optimizer in self._optimizers for group in optimizer.param_groups
                   for one in group["params"]}
        return any(id(_local(one)) in trained for one in module.parameters())

    def _evaluate(self, evaluates: bool) -> None:
        for observation in self.observations:
            observation.evaluate(evaluates)

    def _begin(self) -> None:
        self.began = True
        self.on_begin()
        self.change.begin([one for one in self.roots() if self._is_trained(one)])
        self.know()
        for observation in self.observations:
            observation.begin_step(1)
        self._evaluate(any(not one.training and self._is_trained(one) for one in self.roots()))

    # ---- Steps

    def _note_optimizers(self) -> None:
        known, before = self._optimizers, torch.optim.Optimizer.__init__

        def __init__(self: torch.optim.Optimizer, *arguments: Any, **more: Any) -> None:
            before(self, *arguments, **more)
            known.add(self)

        torch.optim.Optimizer.__init__ = __init__  # type: ignore[method-assign]
        of_optimizers.register_optimizer_step_pre_hook(self._before_step)
        of_optimizers.register_optimizer_step_post_hook(self._after_step)

    def _note_backward(self) -> None:
        before = torch.autograd.backward

        def backward(*arguments: Any, **more: Any) -> Any:
            if not self._optimizers:
                if self.passes == MOST_PASSES:
                    self.was_stopped_after_passes = True
                    self.stop()
                self.passes += 1
            return before(*arguments, **more)

        torch.autograd.backward = backward

    def _before_step(self, optimizer: torch.optim.Optimizer, arguments: Any, more: Any) -> Any:
        if not self.began:
            self._begin()
        self._know_sharded_gradients()
        if id(optimizer) in self._running:  # its last step failed
            del self._running[self._running.index(id(optimizer)):]
        self._running.append(id(optimizer))
        for observation in self.observations:
            observation.begin_optimizer()
        return (tuple(self._outside(one) if callable(one) else one for one in arguments),
                {name: self._outside(one) if callable(one) else one for name, one in more.items()})

    def _outside(self, closure: Callable[..., Any]) -> Callable[..., Any]:
        """A closure's forward and backward pass are not the optimizer's, which calls it."""
        @functools.wraps(closure)
        def outside(*arguments: Any, **more: Any) -> Any:
            for observation in self.observations:
                observation.end_optimizer()
            try:
                return closure(*arguments, **more)
            finally:
                for observation in self.observations:
                    observation.begin_optimizer()
        return outside

    def _after_step(self, optimizer: torch.optim.Optimizer, arguments: Any, more: Any) -> None:
        while self._running and self._running.pop() != id(optimizer):
            pass
        if self._running:  # one inside another
            return
        self._counts[id(optimizer)] = self._counts.get(id(optimizer), 0) + 1
        states = [(self._owners.get(id(_local(parameter)), ""), _local(one))
                  for parameter, held in optimizer.state.items() if isinstance(held, dict)
                  for one in held.values() if isinstance(one, torch.Tensor)]
        for observation in self.observations:
            observation.know_states(states)
            observation.end_optimizer()
        if self._is_round_complete():
            self._end_step()

    def _is_round_complete(self) -> bool:
        """All optimizers have stepped as often as this step needs. One that has not stepped while another did
        so six times takes no part."""
        counts = [self._counts.get(id(one), 0) for one in self._optimizers]
        most = max(self._counts.values())
        return all(count >= self.step for count in counts if count or most < 6)

    def _end_step(self) -> None:
        for observation in self.observations:
            observation.end_step()
        self.ended = self.step
        if self.step == self.steps:
            self.stop()
        self.step += 1
        self._forwards = [0, 0]
        self.know()
        for observation in self.observations:
            observation.begin_step(self.step)


def _tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    yield from module.parameters()
    yield from module.buffers()


def _numbers(parameters: dict[int, torch.Tensor]) -> int:
    return sum(bitsandbytes_kernels.shape_of(one).numel() for one in parameters.values())


def _plain(name: str) -> str:
    """A parameter's name without those of wrappers (DistributedDataParallel, torch.compile, FSDP)."""
    for wrapper in _OF_WRAPPERS:
        name = name.removeprefix(wrapper).replace("." + wrapper, ".") if wrapper != "module." else \
            name.removeprefix(wrapper)
    return name

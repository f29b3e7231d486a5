"""Will it fit? Runs a model's own Python code, forward, backward and optimizer, on a simulated card
without data."""
from __future__ import annotations

import dataclasses
import inspect
import numbers
import os
import threading
from typing import Any, Callable, Iterable, Optional, TypeVar, Union

import torch
from torch import nn

from headroom import _backend, _core, _engine, bitsandbytes_kernels, child, simulation
from headroom.card import card_of
from headroom.errors import UsageError
from headroom.models import Model
from headroom.moving import makes_a_batch, tensors_of
from headroom.optimizers import Like, Optimizers, maker_of, named_optimizer
from headroom.reports import Report
from headroom.room import Room, room_of, tensors_of_training
from headroom.sizes import Bytes
from headroom.subjects import Loss, Subject, Training, default_loss, subject_of

Result = TypeVar("Result")


class MaxBatch(int):
    """The largest batch that fits; 0 if not even the smallest does."""
    recommended: int = 0  # leaves the margin
    capped: bool = False  # max_batch fits
    proven: bool = False  # a run showed that the next larger one does not fit
    probes: list[dict[str, Any]]
    notes: list[str]  # differences between the given model and the one that ran

    def __repr__(self) -> str:
        how = "the largest allowed" if self.capped else "proven" if self.proven else "not proven"
        return f"<MaxBatch: {int(self)}, {how}; recommended {self.recommended}>"

    __str__ = int.__repr__


# ---- Where an estimate runs

_one_at_a_time = threading.RLock()


def _nobody_is_at_it() -> None:
    global _one_at_a_time
    _one_at_a_time = threading.RLock()


os.register_at_fork(after_in_child=_nobody_is_at_it)


def _in_its_place(function: Callable[..., Result], **arguments: Any) -> Result:
    """Runs it here, or in a child process if this one cannot make a card; threads take turns. It records
    graphs, as a training does, even if the caller does not."""
    _backend.check_torch()
    with _one_at_a_time, torch.inference_mode(False), torch.enable_grad():
        try:
            return child.run(function, arguments)
        finally:
            bitsandbytes_kernels.forget_tables()


def _estimated(training: Training, batch: Any, gpu: str = "unlimited", steps: int = 2,
               biggest: int = 10, trace: bool = False, rules: str = "cuda",
               settings: Optional[str] = None, cublas_workspaces: bool = True) -> Report:
    notes: list[str] = []

    def make(device: torch.device) -> Subject:
        _backend.register()
        return training.subject(batch, torch.device(device), notes)

    return Report(_engine.dry_run(gpu, make, steps, biggest, trace, rules, settings,
                                  cublas_workspaces), notes)


def _margin(margin: Union[float, str]) -> tuple[float, Optional[Bytes]]:
    """A share, or a size: 0.1, "10%", "2GiB"."""
    if not isinstance(margin, str):
        return margin, None
    percent = margin.strip().removesuffix("%")
    if percent != margin.strip() and percent.replace(".", "", 1).isdecimal():
        return float(percent) / 100, None
    return 0.0, Bytes(margin)


def _searched(training: Training, create_batch_fn: Callable[[int], Any], room: Room, min_batch: int,
              max_batch: int, margin: Union[float, str], steps: int) -> MaxBatch:
    notes: list[str] = []

    def make_for(size: int) -> Callable[[torch.device], Subject]:
        def make(device: torch.device) -> Subject:
            _backend.register()
            device = torch.device(device)
            rest = room.take_the_rest(device)
            step, parameters, buffers, inputs, states = training.subject(lambda: create_batch_fn(size),
                                                                         device, notes)
            return step, parameters, buffers, inputs + rest, states
        return make

    share, size = _margin(margin)
    found = _engine.find_largest(make_for, min_batch, max_batch, share, size, steps, room.card,
                                 room.rules, room.settings)
    answer = MaxBatch(found["size"] or 0)
    answer.recommended = found["recommended"] or 0
    answer.capped, answer.proven, answer.notes = found["capped"], found["proven"], notes
    answer.probes = [{**one, "peak_reserved_bytes": one["peak_reserved_bytes"] - room.taken_bytes}
                     for one in found["probes"]]
    return answer


def _checked_card(gpu: str, rules: str) -> str:
    gpu = simulation.without_prefix("estimate", gpu)
    if gpu == "cuda" or gpu.startswith("cuda:"):
        raise UsageError(f"[estimate] expected a card such as \"RTX 4090\" or \"24GiB\", received '{gpu}'; try "
                         f"find_max_batch_size(..., device=\"{gpu}\") for its usable memory")
    is_spec = gpu != "unlimited" and not gpu.startswith("{")  # else a card in JSON
    if is_spec and ("@" in gpu or len(_core.gpus(f"sim:{gpu}")["gpus"]) != 1):
        raise UsageError(f"[estimate] expected one card, received '{gpu}'; try headroom.simulate(\"{gpu}\") "
                         "and headroom.dry_run(step, device=...) for each card")
    if rules not in ("cuda", "cpu"):
        raise UsageError(f"[estimate] expected rules 'cuda' or 'cpu', received '{rules}'")
    return gpu


def _check_counts(least: int, **counts: int) -> None:
    for name, count in counts.items():
        if not isinstance(count, numbers.Integral) or count < least:
            raise UsageError(f"[estimate] expected as {name} a whole number from {least} on, received "
                             f"'{count}'")


# ---- The functions

def dry_run(step: Callable[[], Any], *, device: Union[torch.device, str, int] = 0,
            model: Optional[nn.Module] = None, inputs: Any = (), steps: int = 2, biggest: int = 10,
            trace: bool = False) -> Report:
    """Runs a training step twice on a simulated card of this process, and reports its memory. The step may
    do anything with tensors on that card.

        headroom.simulate("RTX 4090")
        model = Net().to("sim")
        report = headroom.dry_run(step, model=model)

    `model` gives the report its names; without it, tensors that need a gradient count as parameters.
    The card has to be shape-only; the report contains an out-of-memory. The step runs on the card
    itself: other tensors there count, its peaks restart, and tensors that the step keeps stay."""
    card = card_of(device)
    if not callable(step):
        raise UsageError("[dry_run] expected a step, a function without arguments, received "
                         f"'{type(step).__name__}'")
    _check_counts(1, steps=steps)
    _check_counts(0, biggest=biggest)
    subject = subject_of(step, model, list(tensors_of(inputs)))
    return Report(_engine.dry_run_on(card._card, subject, steps, biggest, trace))


def estimate(model: Model, batch: Any, *, gpu: str = "unlimited", optimizer: Optimizers = None,
             loss: Loss = default_loss, precision: Union[str, torch.dtype, None] = None,
             mode: Optional[str] = None, steps: int = 2, biggest: int = 10, rules: str = "cuda",
             settings: Optional[str] = None, cublas_workspaces: bool = True, trace: bool = False,
             assume: Optional[float] = 0.5) -> Report:
    """Estimates the memory of training a model, and whether it fits a card.

        headroom.estimate(model, {"input_ids": ids, "labels": ids}, gpu="RTX 4090").fits

    model: a module on any device - a copy without data runs, and the module does not change -, or a
        function that makes one: then nothing is ever allocated, whatever its size.
    batch: the model's input - a tensor, a tuple or list, a mapping, a dataclass, an object with
        `to(device)` -, or a function that makes one.
    gpu: "RTX 4090", "24GiB", ...; without it the card has no limit.
    optimizer: a name; an optimizer of the model, of which a second one is made over the same parameters;
        or a function of the parameters. Default: AdamW.
    loss: loss(model, batch). Default: the model's own - `output.loss`, or a single number that it
        returns beside its logits -, else the mean of its output.
    precision: "fp32", "fp16", "bf16" (weights and the floating tensors of the batch), "amp_fp16",
        "amp_bf16"; torch.bfloat16 means "bf16"; None: unchanged.
    mode: "train", or "inference", a forward pass in eval() without a graph; None: train, unless the
        model is in eval() and frozen.
    steps: the second has the optimizer's state from its start.
    biggest: the number of tensors that the report names; trace: keep every event, for Report.write_trace.
    rules, settings, cublas_workspaces, assume: as for simulate(). Report.assumptions says what was assumed.

    On a machine with GPUs it runs in a forked child, so that this process can train on them afterwards. If
    this process has used CUDA, or simulates a box, it runs in a new Python, which takes some seconds, and the
    box does not change. Threads take turns."""
    gpu = _checked_card(gpu, rules)
    _check_counts(1, steps=steps)
    _check_counts(0, biggest=biggest)
    training = Training(model, loss, maker_of(optimizer, model), precision, mode,
                        simulation.checked_assumption("estimate", assume))
    return _in_its_place(_estimated, training=training, batch=batch, gpu=gpu, steps=steps,
                         biggest=biggest, trace=trace, rules=rules, settings=settings,
                         cublas_workspaces=cublas_workspaces)


def find_max_batch_size(model: Model, create_batch_fn: Callable[[int], Any],
                        device: Union[torch.device, str, None] = None, min_batch: int = 1,
                        max_batch: int = 512, *, gpu: Optional[str] = None,
                        optimizer: Optimizers = None, loss: Loss = default_loss,
                        precision: Union[str, torch.dtype, None] = None, mode: Optional[str] = None,
                        margin: Union[float, str] = 0.1, steps: int = 2,
                        rules: Optional[str] = None, settings: Optional[str] = None,
                        assume: Optional[float] = 0.5) -> MaxBatch:
    """Finds the largest batch with which the model trains, by at most six dry runs.

        headroom.find_max_batch_size(model, lambda n: torch.randn(n, 3, 224, 224), gpu="RTX 4090")

    create_batch_fn(n) makes a batch of n rows of the greatest length in the training.
    device: a GPU, or a simulated card of this process, with its memory at this moment: the free memory, and
        that of the model, its gradients and `optimizer`, if it is one. Its rules apply.
    gpu: a card of the catalogue or a size, such as "RTX 4090", instead of a device.
    margin: `recommended` leaves it: a share of the batch, 0.1 or "10%", or bytes of the card, "2GiB". If
        max_batch leaves the margin, it is recommended.
    The other arguments are those of `estimate`."""
    if gpu is not None and device is not None:
        raise UsageError(f"[find_max_batch_size] expected a device or a gpu, received both, '{device}' "
                         f"and '{gpu}'")
    room = Room(gpu) if gpu is not None else room_of(device, tensors_of_training(model, optimizer))
    room.rules, room.settings = rules or room.rules, settings or room.settings
    room.card = _checked_card(room.card, room.rules)
    _check_counts(1, min_batch=min_batch, max_batch=max_batch, steps=steps)
    if not makes_a_batch(create_batch_fn):
        raise UsageError("[find_max_batch_size] expected a function that makes a batch of n rows, "
                         f"received '{type(create_batch_fn).__name__}'; try lambda n: torch.randn(n, ...)")
    training = Training(model, loss, maker_of(optimizer, model), precision, mode,
                        simulation.checked_assumption("find_max_batch_size", assume))
    return _in_its_place(_searched, training=training, create_batch_fn=create_batch_fn, room=room,
                         min_batch=min_batch, max_batch=max_batch, margin=margin, steps=steps)


def get_optimal_batch_size(model: Model, create_batch_fn: Callable[[int], Any],
                           device: Union[torch.device, str, None] = None, min_batch: int = 1,
                           max_batch: int = 512, **more: Any) -> int:
    """The batch that `find_max_batch_size` recommends."""
    try:
        return find_max_batch_size(model, create_batch_fn, device, min_batch, max_batch, **more).recommended
    except UsageError as error:  # names the function that was called
        raise UsageError(str(error).replace("[find_max_batch_size]", "[get_optimal_batch_size]", 1)) from None


# ---- Names that programs already use

def inputs_for(model: nn.Module, rows: int, length: int) -> Callable[[], Any]:
    """A batch for a model that declares its inputs: transformers' models, and models that begin with an
    embedding. It never guesses a shape."""
    config = getattr(model, "config", None)
    main = getattr(model, "main_input_name", "input_ids" if config is not None else None)
    side = getattr(config, "image_size", None)
    if main == "pixel_values" and side:
        sides = tuple(side) if isinstance(side, (list, tuple)) else (side, side)
        channels = getattr(config, "num_channels", 3)
        dtype = next(model.parameters()).dtype
        return lambda: _with_labels(model, {
            "pixel_values": torch.zeros(rows, channels, *sides, dtype=dtype)}, rows, None)
    if main == "input_ids":
        return lambda: _with_labels(model, {
            "input_ids": torch.zeros(rows, length, dtype=torch.long)}, rows, length)
    first = next((one for one in model.modules() if not list(one.children())), None)
    if isinstance(first, nn.Embedding):
        return lambda: torch.zeros(rows, length, dtype=torch.long)
    raise UsageError(
        "[estimate_training_memory] expected a model that says what it takes (one of transformers', "
        f"or one that begins with an embedding), received '{type(model).__name__}'; try "
        "create_batch_fn=lambda n: torch.randn(n, ...)")


def _with_labels(model: nn.Module, batch: dict[str, torch.Tensor], rows: int,
                 length: Optional[int]) -> dict[str, torch.Tensor]:
    if "labels" not in inspect.signature(model.forward).parameters:
        return batch
    one_a_row = "SequenceClassification" in type(model).__name__
    shape = [rows] if length is None or one_a_row else [rows, length]
    batch["labels"] = torch.zeros(shape, dtype=torch.long)
    return batch


def estimate_training_memory(model: nn.Module, batch_size: int, seq_length: int = 512,
                             precision: str = "fp32", optimizer: str = "adam", *,
                             create_batch_fn: Optional[Callable[[int], Any]] = None,
                             loss: Loss = default_loss) -> dict[str, Union[float, int]]:
    """The peak of a training step and its parts, in decimal GB, by dry run: total_gb,
    params_gb, grads_gb, optimizer_gb, activations_gb (the rest), and total_params,
    trainable_params."""
    if not isinstance(model, nn.Module):
        raise UsageError(f"[estimate_training_memory] expected a module, received '{model}'; try the model itself"
                         + (f", or `headroom estimate {model}` in a shell" if isinstance(model, str) else ""))
    batch = (lambda: create_batch_fn(batch_size)) if create_batch_fn is not None else \
        inputs_for(model, batch_size, seq_length)
    training = Training(model, loss, named_optimizer(optimizer), precision, "train")
    report, grads, states = _in_its_place(_estimated_in_parts, training=training, batch=batch)
    params = report.at_peak.parameters + report.at_peak.buffers
    everything = list(model.parameters())
    gb = 1e9
    return {
        "total_gb": report.peak.allocated / gb,
        "params_gb": params / gb,
        "grads_gb": grads / gb,
        "optimizer_gb": states / gb,
        "activations_gb": (report.peak.allocated - params - grads - states) / gb,
        "total_params": sum(one.numel() for one in everything),
        "trainable_params": sum(one.numel() for one in everything if one.requires_grad),
    }


def _estimated_in_parts(training: Training, batch: Any) -> tuple[Report, int, int]:
    """The report, and the bytes of the gradients and of the optimizer's state."""
    make = training.make_optimizer
    made: list[torch.optim.Optimizer] = []
    assert not isinstance(make, Like)

    def make_optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        made[:] = [make(parameters)]
        return made[0]

    report = _estimated(dataclasses.replace(training, make_optimizer=make_optimizer), batch)
    return (report, _size(one for group in made[0].param_groups for one in group["params"]),
            _size(one for state in made[0].state.values() for one in state.values()))


def _size(values: Iterable[Any]) -> int:
    """The bytes of those tensors that lie on a simulated card."""
    return sum(one.numel() * one.element_size() for one in values
               if isinstance(one, torch.Tensor) and one.device.type == "sim")

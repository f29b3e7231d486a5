"""Will it fit? A model's own Python code runs forward, backward and optimizer on a simulated card,
without data, before it ever sees a GPU."""
from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
from typing import Any, Callable, Iterable, Iterator, Optional, Union

import torch
from torch import nn

from headroom import _backend, _engine, simulation
from headroom.errors import UsageError
from headroom.reports import Report
from headroom.sizes import Bytes

Model = Union[nn.Module, Callable[[], nn.Module]]
Loss = Callable[[nn.Module, Any], torch.Tensor]
Optimizers = Union[None, str, torch.optim.Optimizer, Callable[[Iterable[nn.Parameter]], Any]]

OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01),
    "sgd-momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    "adafactor": torch.optim.Adafactor,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
}


# ---- Models, batches and optimizers on a simulated card

def copy_on(model: nn.Module, device: torch.device) -> nn.Module:
    """The model on the device, without its data; the model itself is not touched. Parameters that
    are shared stay shared."""
    memo: dict[int, Any] = {}
    for tensor in [*model.parameters(), *model.buffers()]:
        twin = torch.empty_like(tensor, device=device)
        if isinstance(tensor, nn.Parameter):
            twin = nn.Parameter(twin, requires_grad=tensor.requires_grad)
        memo[id(tensor)] = twin
    return copy.deepcopy(model, memo)


def model_on(model: Model, device: torch.device) -> nn.Module:
    if isinstance(model, nn.Module):
        return copy_on(model, device)
    with torch.device(device):
        made = model()
    if not isinstance(made, nn.Module):
        raise UsageError(f"[estimate] expected a model, or a function that makes one, received one "
                         f"that makes '{type(made).__name__}'")
    return made.to(device)


def moved(value: Any, device: torch.device) -> Any:
    """Tensors of a batch - alone, or in lists, tuples, dicts and dataclasses - on the device."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        items = {key: moved(one, device) for key, one in value.items()}
        return items if type(value) is dict else type(value)(items)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(moved(one, device) for one in value))
    if isinstance(value, (list, tuple)):
        return type(value)(moved(one, device) for one in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **{field.name: moved(getattr(value, field.name), device)
                                             for field in dataclasses.fields(value) if field.init})
    return value


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from tensors_of(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors_of(one)


def batch_on(batch: Any, device: torch.device) -> Any:
    if callable(batch) and not isinstance(batch, torch.Tensor):
        with torch.device(device):
            batch = batch()
    return moved(batch, device)


def output_of(model: nn.Module, batch: Any) -> Any:
    if isinstance(batch, dict) or hasattr(batch, "keys"):
        return model(**batch)
    if isinstance(batch, (list, tuple)):
        return model(*batch)
    return model(batch)


def default_loss(model: nn.Module, batch: Any) -> torch.Tensor:
    """The loss that the model gives (transformers' models do, with labels), else the mean of its
    first floating output."""
    output = output_of(model, batch)
    loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor):
        return loss
    for tensor in tensors_of(output):
        if tensor.is_floating_point():
            return tensor.mean()
    raise UsageError(f"[estimate] expected a model whose output has a loss or a floating tensor, "
                     f"received '{type(output).__name__}'; try loss=lambda model, batch: ...")


def named_optimizer(name: str) -> Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]:
    if name not in OPTIMIZERS:
        raise UsageError(f"[estimate] expected an optimizer, one of {', '.join(OPTIMIZERS)}, "
                         f"received '{name}'; try optimizer=lambda parameters: ...")
    return OPTIMIZERS[name]


def optimizer_for(optimizer: Optimizers, model: nn.Module) -> Any:
    parameters = [one for one in model.parameters() if one.requires_grad]
    if optimizer is None:
        return torch.optim.AdamW(parameters)
    if isinstance(optimizer, str):
        return named_optimizer(optimizer)(parameters)
    if isinstance(optimizer, torch.optim.Optimizer):  # another one of its kind
        known = inspect.signature(type(optimizer)).parameters
        defaults = {key: value for key, value in optimizer.defaults.items() if key in known}
        return type(optimizer)(parameters, **defaults)
    return optimizer(parameters)


@contextlib.contextmanager
def cast_to(precision: str) -> Iterator[None]:
    dtype = {"amp_fp16": torch.float16, "amp_bf16": torch.bfloat16}.get(precision)
    if dtype is None:
        yield
        return
    with torch.autocast("sim", dtype):
        yield


DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
PRECISIONS = (*DTYPES, "amp_fp16", "amp_bf16")


def _subject(model: Model, batch: Any, loss: Loss, optimizer: Optimizers, precision: Optional[str],
             device: torch.device) -> tuple[Any, ...]:
    if precision is not None and precision not in PRECISIONS:
        raise UsageError(f"[estimate] expected a precision, one of {', '.join(PRECISIONS)}, received "
                         f"'{precision}'")
    there = model_on(model, device)
    if precision in DTYPES:
        there.to(DTYPES[precision])
    inputs = batch_on(batch, device)
    trained = optimizer_for(optimizer, there)

    def step() -> None:
        trained.zero_grad()
        with cast_to(precision or ""):
            value = loss(there, inputs)
        value.backward()
        trained.step()

    return (step, list(there.named_parameters()), list(there.named_buffers()),
            list(tensors_of(inputs)))


# ---- The functions

def dry_run(step: Callable[[], Any], *, device: Union[torch.device, str, int] = 0,
            model: Optional[nn.Module] = None, inputs: Any = (), steps: int = 2, biggest: int = 10,
            trace: bool = False) -> Report:
    """Runs a training step twice on a card of this process's simulation, and tells what memory it
    took: whatever the step does, with tensors that lie there.

        headroom.simulate("RTX 4090")
        model = Net().to("sim")
        report = headroom.dry_run(step, model=model)

    `model` gives the report its names; without one, tensors that need a gradient are taken for
    parameters. The card is shape-only meanwhile; an out-of-memory is in the report."""
    card = simulation.card_of(device)
    parameters = list(model.named_parameters()) if model is not None else []
    buffers = list(model.named_buffers()) if model is not None else []
    return Report(_engine.dry_run_on(card._card, (step, parameters, buffers, list(tensors_of(inputs))),
                                     steps, biggest, trace))


def estimate(model: Model, batch: Any, *, gpu: str = "unlimited", optimizer: Optimizers = None,
             loss: Loss = default_loss, precision: Optional[str] = None, steps: int = 2,
             biggest: int = 10, rules: str = "cuda", settings: Optional[str] = None,
             cublas_workspaces: bool = True, trace: bool = False) -> Report:
    """How much memory training this model takes, and whether it fits a card.

        headroom.estimate(model, {"input_ids": ids, "labels": ids}, gpu="RTX 4090").fits

    model: a module, wherever it lies - a copy without data runs, and it is not touched -, or a
        function that makes one: then nothing is ever allocated, whatever its size.
    batch: a tensor, a tuple or a dict - what the model takes -, or a function that makes one.
    gpu: "RTX 4090", "24GiB", ...; without it the card has no limit.
    optimizer: a name, one of its kind, or a function of the parameters; AdamW without.
    loss: loss(model, batch); without one the model's own, or the mean of its output.
    precision: "fp32", "fp16", "bf16" (weights, too), "amp_fp16", "amp_bf16"; None: as it is.

    Two steps are run: the second has the optimizer's state from its start."""
    _backend.check_torch()

    def make(device: torch.device) -> tuple[Any, ...]:
        _backend.register()
        return _subject(model, batch, loss, optimizer, precision, torch.device(device))

    with _no_box():
        return Report(_engine.dry_run(gpu, make, steps, biggest, trace, rules, settings,
                                      cublas_workspaces))


@contextlib.contextmanager
def _no_box() -> Iterator[None]:
    """A card of its own is simulated: two boxes in a process cannot be."""
    if simulation.current_box() is not None:
        raise UsageError("[estimate] expected a process that simulates nothing, received one with a "
                         "box of its own; try headroom.dry_run(step) on that box, or end() it")
    yield


class MaxBatch(int):
    """The largest batch that fits; 0: not even the smallest. `recommended` is some less."""
    recommended: int
    capped: bool  # max_batch fits
    proven: bool  # one more was run and does not fit
    probes: list[dict[str, Any]]


def find_max_batch_size(model: Model, create_batch_fn: Callable[[int], Any],
                        device: Union[torch.device, str, None] = None, min_batch: int = 1,
                        max_batch: int = 512, *, gpu: Optional[str] = None,
                        optimizer: Optimizers = None, loss: Loss = default_loss,
                        precision: Optional[str] = None, margin: float = 0.1, steps: int = 2,
                        rules: str = "cuda", settings: Optional[str] = None) -> MaxBatch:
    """The largest batch with which the model trains, by at most six dry runs.

        headroom.find_max_batch_size(model, lambda n: torch.randn(n, 3, 224, 224), gpu="RTX 4090")

    create_batch_fn(n) makes a batch of n of the longest rows there will be. The card is `gpu`, or
    the room that `device` has now: what is free there, and what this process's model on it takes.
    The other words are those of `estimate`."""
    spec = gpu if gpu is not None else _room_of(device, model)

    def make_for(size: int) -> Callable[[torch.device], tuple[Any, ...]]:
        def make(at: torch.device) -> tuple[Any, ...]:
            _backend.register()
            return _subject(model, lambda: create_batch_fn(size), loss, optimizer, precision,
                            torch.device(at))
        return make

    with _no_box():
        found = _engine.find_largest(make_for, min_batch, max_batch, margin, None, steps, spec,
                                     rules, settings)
    answer = MaxBatch(found["size"] or 0)
    answer.recommended = found["recommended"] or 0
    answer.capped, answer.proven, answer.probes = found["capped"], found["proven"], found["probes"]
    return answer


def _room_of(device: Union[torch.device, str, None], model: Model) -> str:
    from headroom import memory

    device = memory.device_of(device)
    if device.type != "cuda":
        raise UsageError(f"[find_max_batch_size] expected a GPU, received '{device}'; try "
                         "gpu=\"RTX 4090\"")
    stats = memory.get_gpu_memory_stats(device)
    free = stats.free if stats.free is not None else torch.cuda.mem_get_info(device)[0]
    ours = sum({id(one): one.numel() * one.element_size() for one in model.parameters()
                if one.device == device}.values()) if isinstance(model, nn.Module) else 0
    return f"{(free + stats.reserved - stats.allocated + ours) >> 20}MiB"


def get_optimal_batch_size(model: Model, create_batch_fn: Callable[[int], Any],
                           device: Union[torch.device, str, None] = None, min_batch: int = 1,
                           max_batch: int = 512, **more: Any) -> int:
    """The batch to take: what `find_max_batch_size` recommends."""
    return find_max_batch_size(model, create_batch_fn, device, min_batch, max_batch,
                               **more).recommended


# ---- The names that people have already

def inputs_for(model: nn.Module, rows: int, length: int) -> Callable[[], Any]:
    """A batch for a model that says what it takes: transformers' models, and those that begin with an
    embedding. Never a shape that is only assumed."""
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
    """The peak of a training step and what it is made of, in decimal GB, by dry run: total_gb,
    params_gb, grads_gb, optimizer_gb, activations_gb (the rest), and total_params,
    trainable_params."""
    batch = (lambda: create_batch_fn(batch_size)) if create_batch_fn is not None else \
        inputs_for(model, batch_size, seq_length)
    made: list[torch.optim.Optimizer] = []

    def make_optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        made[:] = [named_optimizer(optimizer)(parameters)]
        return made[0]

    report = estimate(model, batch, precision=precision, optimizer=make_optimizer, loss=loss)
    params = report.at_peak.parameters + report.at_peak.buffers
    grads = _size(one for group in made[0].param_groups for one in group["params"])
    states = _size(one for state in made[0].state.values() for one in state.values())
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


def _size(values: Iterable[Any]) -> int:
    """Of the tensors among them that lie on a simulated card."""
    return sum(one.numel() * one.element_size() for one in values
               if isinstance(one, torch.Tensor) and one.device.type == "sim")

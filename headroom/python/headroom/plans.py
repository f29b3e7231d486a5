"""How does a model train on these cards? `headroom plan` for published models, replicas for a module of one's own."""
from __future__ import annotations

import json
import math
import os
import pathlib
import shutil
import subprocess
import sysconfig
import tempfile
from typing import Any, Callable, Optional, Union

from torch import nn

from headroom import _core, estimates
from headroom.errors import Error, InputError, UnavailableError, UsageError
from headroom.models import Model
from headroom.optimizers import Optimizers
from headroom.sizes import Bytes
from headroom.subjects import Loss, default_loss

_DOES_NOT_FIT, _USAGE, _BAD_INPUT = 2, 64, 65
_LEAST_ROOM, _SHARE_OF_ROOM = Bytes("512MiB"), 0.05  # that a plan leaves free on a card


class Plan:
    """The fastest way to train a model on some cards, of those that fit.

    fits, why_not: whether there is one, else the reason.
    micro_batch, accumulation, replicas: rows of a forward pass, passes of a step, copies of the model.
    split: {"gpu", "replica", "first", "last"} for each card: its layers, or None where it has the whole module.
    peak_reserved_bytes: of each card; of a module of one's own at most so many.
    step_s: of a published model, by the cost model. command: the `headroom train` that runs it.
    notes: what the plan could not consider. document: all of `headroom plan --json`; None for a module of one's own."""

    def __init__(self, chosen: Optional[dict[str, Any]], why_not: Optional[str], peaks: list[int],
                 step_s: Optional[float] = None, command: Optional[str] = None,
                 notes: Optional[list[str]] = None, document: Optional[dict[str, Any]] = None) -> None:
        self.fits, self.why_not = chosen is not None, why_not
        self.chosen = chosen or {}
        self.micro_batch: int = self.chosen.get("micro_batch", 0)
        self.accumulation: int = self.chosen.get("accumulation", 0)
        self.replicas: int = self.chosen.get("replicas", 0)
        self.split: list[dict[str, Any]] = self.chosen.get("split", [])
        self.peak_reserved_bytes = [Bytes(one) for one in peaks]
        self.step_s, self.command, self.notes, self.document = step_s, command, notes or [], document

    def __repr__(self) -> str:
        if not self.fits:
            return f"<Plan: does not fit; {self.why_not}>"
        stages = len(self.split) // self.replicas
        return (f"<Plan: {self.replicas} x {stages} cards, micro-batch {self.micro_batch} in "
                f"{self.accumulation} parts>")


def plan(model: Union[str, os.PathLike[str], Model], create_batch_fn: Optional[Callable[[int], Any]] = None, *,
         gpus: str, batch: int = 32, optimizer: Optimizers = None, loss: Loss = default_loss,
         **settings: Any) -> Plan:
    """Finds the fastest way to train a model on these cards that fits.

        headroom.plan("llama-2-7b", gpus="sim:8x31.36GiB", batch=32, seq=1024, dtype="bfloat16").command
        headroom.plan(model, lambda rows: torch.randn(rows, 3, 224, 224), gpus="sim:4x24GiB").micro_batch

    model: a name or a config.json, as for `headroom plan`; a model of transformers that `headroom train` knows; or
        a module of one's own with create_batch_fn(rows). The latter cannot be split into stages: it is planned over
        replicas, and `notes` says so.
    gpus: as on the command line. batch: the rows of a step, of all replicas together.
    optimizer, loss: of a module of one's own, as for `estimate`.
    settings: options of `headroom plan`: seq=1024, dtype="bfloat16", tune="any", budget="20GiB", balance=True."""
    config = getattr(model, "config", None)
    if create_batch_fn is None and isinstance(model, (str, os.PathLike)):
        return _of_published(os.fspath(model), gpus, batch, settings)
    if create_batch_fn is None and hasattr(config, "to_dict"):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "config.json"
            file.write_text(json.dumps(config.to_dict(), default=str))
            return _of_published(str(file), gpus, batch, settings)
    if create_batch_fn is None or isinstance(model, (str, os.PathLike)):
        raise UsageError("[plan] expected a name, a model of transformers, or a module with create_batch_fn, received "
                         f"'{type(model).__name__}'; try create_batch_fn=lambda rows: torch.randn(rows, ...)")
    if settings:
        raise UsageError(f"[plan] expected no settings for a module of one's own, received '{', '.join(settings)}'; "
                         "make the module so")
    return _over_replicas(model, create_batch_fn, gpus, batch, optimizer, loss)


# ---- Published models, by the command

def _command() -> str:
    name = "headroom"
    built = pathlib.Path(__file__).parents[2] / "bin" / name
    installed = pathlib.Path(sysconfig.get_path("scripts")) / name
    found = next((str(one) for one in (built, installed) if one.is_file()), shutil.which(name))
    if found is None:
        raise UnavailableError("[plan] expected the command headroom beside this package or in PATH, received none")
    return found


def _of_published(model: str, gpus: str, batch: int, settings: dict[str, Any]) -> Plan:
    words = [_command(), "plan", model, "--gpus", gpus, "--batch", str(batch), "--json"]
    for name, value in settings.items():
        option = "--" + name.replace("_", "-")
        if value is not False and value is not None:
            words += [option] if value is True else [option, str(value)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode not in (0, _DOES_NOT_FIT):
        kind = {_USAGE: UsageError, _BAD_INPUT: InputError}.get(done.returncode, Error)
        raise kind(done.stderr.strip().removeprefix("headroom: "))
    answer = json.loads(done.stdout)
    predicted = answer["predicted"] or {}
    refused = answer["refused_ways"]
    return Plan(answer["chosen"], None if answer["chosen"] else refused[-1]["why_not"],
                predicted.get("peak_reserved_bytes", []), predicted.get("step_s"), answer["command"], [], answer)


# ---- A module of one's own

def _room_of(card: dict[str, Any]) -> int:
    usable = card["usable_bytes"]
    if usable is None:
        raise UnavailableError(f"[plan] expected a card that reports its memory, received '{card['name']}'")
    return int(usable - max(_LEAST_ROOM, _SHARE_OF_ROOM * usable))


def _gradients(model: Model) -> int:
    module = model if isinstance(model, nn.Module) else None
    return sum(one.numel() * one.element_size() for one in module.parameters() if one.requires_grad) if module else 0


def _over_replicas(model: Model, create_batch_fn: Callable[[int], Any], gpus: str, batch: int,
                   optimizer: Optimizers, loss: Loss) -> Plan:
    cards = _core.gpus(gpus)["gpus"]
    if not cards:
        raise UnavailableError(f"[plan] expected cards to plan for, received none for '{gpus}'")
    notes = ["This module cannot be split into stages, so it is planned over replicas: each card has all of it."]
    gradients = _gradients(model)
    most: dict[int, int] = {}  # rows, by room

    def rows_on(room: int, wanted: int) -> int:
        if room not in most and room > gradients:
            found = estimates.find_max_batch_size(model, create_batch_fn, gpu=str(room - gradients),
                                                  max_batch=batch, optimizer=optimizer, loss=loss, margin=0.0)
            most[room] = int(found)
        return min(most.get(room, 0), wanted)

    rooms = [_room_of(card) for card in cards]
    for replicas in range(min(len(cards), batch), 0, -1):
        wanted = math.ceil(batch / replicas)
        fitting = [(rows, number) for number, room in enumerate(rooms) if (rows := rows_on(room, wanted)) > 0]
        if len(fitting) < replicas:
            continue
        chosen = sorted(fitting, key=lambda one: (-one[0], one[1]))[:replicas]
        parts = math.ceil(wanted / min(rows for rows, _ in chosen))
        micro = math.ceil(wanted / parts)
        peak = estimates.estimate(model, lambda: create_batch_fn(micro), optimizer=optimizer,
                                  loss=loss).peak.reserved + (gradients if parts > 1 else 0)
        used = sorted(number for _, number in chosen)
        split = [{"gpu": number, "replica": replica, "first": None, "last": None}
                 for replica, number in enumerate(used)]
        peaks = [peak if number in used else 0 for number in range(len(cards))]
        return Plan({"micro_batch": micro, "accumulation": parts, "replicas": replicas, "split": split}, None, peaks,
                    notes=notes)
    need = estimates.estimate(model, lambda: create_batch_fn(1), optimizer=optimizer, loss=loss).peak.reserved
    why = f"one row needs {Bytes(need)}, and the roomiest card has {Bytes(max(rooms))} for it"
    return Plan(None, why, [], notes=notes)

"""The Python side of `headroom estimate train.py:make_step`, and of `fit` and `profile` in its place. The
command line starts it as `python -m headroom.command estimate|fit|profile REQUEST`, and prints what it found:
docs/formats/python-step.md has both documents."""
from __future__ import annotations

import importlib.util
import inspect
import json
import os
import pathlib
import re
import sys
import traceback
from typing import Any, Callable, Optional

import torch
from torch import nn

from headroom import _backend, _engine, hints, models, moving, simulation, subjects
from headroom.card import card_of
from headroom.errors import Error, InputError, UsageError
from headroom.rehearsal import changes

# The exit codes of the command line (docs/reference/exit-codes.md).
OK, FAILED, USAGE, BAD_INPUT, UNAVAILABLE = 0, 1, 64, 65, 69

UNLIMITED = {"name": "a card without a limit", "total_bytes": None}


def function_of(name: str) -> Callable[..., Any]:
    """The function that "train.py:make_step" names."""
    file, _, path = (name, ":", "") if name.endswith(".py") else name.rpartition(":")
    if not pathlib.Path(file).is_file():
        raise InputError(f"[estimate] cannot open {file}: no such file")
    spec = importlib.util.spec_from_file_location(pathlib.Path(file).stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(pathlib.Path(file).resolve().parent))
    sys.argv = [file]
    spec.loader.exec_module(module)
    found: Any = module
    for part in path.split("."):
        if not hasattr(found, part):
            known = [name for name, value in vars(module).items()
                     if inspect.isfunction(value) and value.__module__ == module.__name__]
            raise UsageError(f"[estimate] expected a function of {file}, received "
                             f"{repr(path) if path else 'none'}; it has {', '.join(known) or 'none'}"
                             + (f"; try {file}:{known[0]}" if known and not path else ""))
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"[estimate] expected a function, received {path} of {file}, which is "
                         f"'{type(found).__name__}'")
    return found


def call(function: Callable[..., Any], device: torch.device, batch: Optional[int]) -> Any:
    """Calls the function with the batch's size, and with the device if it has a parameter `device`. The size
    goes to the parameter without a default, else to one with "batch" in its name, else to the first."""
    parameters = inspect.signature(function).parameters
    given: dict[str, Any] = {"device": device} if "device" in parameters else {}
    free = {name: one for name, one in parameters.items() if name not in given and one.kind not in (
        one.VAR_POSITIONAL, one.VAR_KEYWORD)}
    needed = [name for name, one in free.items() if one.default is one.empty]
    if batch is not None and not free:
        raise UsageError(f"[--batch] expected a function that takes the batch's size, received "
                         f"{function.__name__}(); try def {function.__name__}(batch): ...")
    if batch is None and len(needed) == 1:
        raise UsageError(f"[estimate] expected a size for '{needed[0]}' of {function.__name__}({needed[0]}), "
                         "received none; try --batch 8")
    if len(needed) > 1:
        raise UsageError("[estimate] expected a function that takes the batch's size and no more, received "
                         f"{function.__name__}({', '.join(needed)}); try defaults for the others")
    arguments: list[Any] = []
    if batch is not None:
        size = next(iter(needed or [name for name in free if "batch" in name] or free))
        if free[size].kind == inspect.Parameter.POSITIONAL_ONLY:
            arguments.append(batch)
        else:
            given[size] = batch
    with torch.device(device):
        return function(*arguments, **given)


class Made:
    """The result of the user's function, in the form that the engine takes."""

    def __init__(self, returned: Any, device: torch.device, mode: Optional[str], notes: list[str]) -> None:
        model: Any
        second: Any
        model, second = returned if isinstance(returned, (tuple, list)) and len(returned) == 2 \
            else (returned, None)
        if isinstance(model, nn.Module):
            models.check_model(model, notes)
        if moving.makes_a_batch(second) and not isinstance(second, nn.Module):
            if mode == "inference":
                raise UsageError("[--mode] expected (module, example inputs) for inference, received a step, "
                                 "which says itself what is run")
            self.model: Optional[nn.Module] = model if isinstance(model, nn.Module) else None
            self.step: Callable[[], Any] = second
            self.inputs: list[torch.Tensor] = []
        elif isinstance(model, nn.Module) and second is not None:
            self.model = module = models.without_wrappers(model).to(device)
            inputs = moving.moved(second, device)
            models.materialize(module, lambda: subjects.output_of(module, inputs))
            self.inputs = list(moving.tensors_of(inputs))
            self.step, _ = subjects.Training(module, subjects.default_loss, torch.optim.AdamW, None,
                                             mode).step(module, inputs, notes)
        else:
            raise UsageError("[estimate] expected (model, step) or (module, example inputs) from the "
                             f"function, received '{type(returned).__name__}'")

    def subject(self) -> subjects.Subject:
        step = self.step

        def run() -> None:
            with hints.added(), models.eagerly():
                step()

        return subjects.subject_of(run, self.model, self.inputs)


class Run:
    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.change = changes.named(request.get("change"), "sim")
        changes.around_calls(self.change)
        self.function = function_of(request["function"])
        self.parameters = self.trainable = 0
        self.notes: list[str] = []

    def make(self, device: Any, batch: Optional[int] = None) -> subjects.Subject:
        _backend.register()
        device = torch.device(device)
        card_of(device)._card.assume_true = 0.5
        made = Made(call(self.function, device, self.request["batch"] if batch is None else batch), device,
                    self.request["mode"], self.notes)
        if made.model is not None:
            self.change.begin([made.model])
            counts = [(one.numel(), one.requires_grad) for one in made.model.parameters()]
            self.parameters = sum(count for count, _ in counts)
            self.trainable = sum(count for count, trained in counts if trained)
        return made.subject()

    def cards(self) -> list[dict[str, Any]]:
        return self.request["cards"] or [UNLIMITED]

    @staticmethod
    def spec(card: dict[str, Any]) -> str:
        return "unlimited" if card["total_bytes"] is None else json.dumps(card)

    def path(self, name: str) -> str:
        return os.path.join(self.request["folder"], name)

    def hand_over(self, found: dict[str, Any]) -> None:
        """Writes what was found, for the command line to print."""
        document = {"parameters": self.parameters, "trainable_parameters": self.trainable, "notes": self.notes,
                    "change_made": self.change.made, **found}
        with open(self.path("found.json"), "w", encoding="utf-8") as file:
            json.dump(document, file)


def estimate(run: Run) -> dict[str, Any]:
    request = run.request
    reports = [_engine.dry_run(run.spec(card), run.make, 2, 10, request["keep_events"], request["rules"],
                               request["allocator"], True) for card in run.cards()]
    if request["keep_events"]:
        for index, report in enumerate(reports):
            report.write_trace(run.path(f"card-{index}.trace"), [("model", request["function"])])
    return {"reports": [report.document() for report in reports]}


def fit(run: Run) -> dict[str, Any]:
    request = run.request
    card = min(run.cards(), key=lambda one: one["total_bytes"] - one["reserved_bytes"])
    margin = request["margin"]
    return _engine.find_largest(
        lambda size: lambda device: run.make(device, size), request["at_least"], request["at_most"],
        margin.get("share", 0.0), margin.get("bytes"), 2, run.spec(card), request["rules"],
        request["allocator"])


def profile(run: Run) -> dict[str, Any]:
    request, card = run.request, run.cards()[0]
    view = request["sort_by"], request["row_limit"], request["group_by"]
    empty_profile().document(*view)  # refuses a wrong --sort-by before the run
    found, fits = _engine.profile_steps(run.spec(card), run.make, request["steps"], request["rules"],
                                        request["allocator"])
    if request["trace"] is not None:
        found.write_chrome(request["trace"])
    return {"profile": found.document(*view), "table": found.table(*view, request["table_width"]),
            "fits": fits}


def empty_profile() -> _engine.Profile:
    with simulation.simulate("1MiB"):
        return _engine.Profiler([]).end()


def sentence(error: Error) -> str:
    """Without the function in front, which users of the command do not know."""
    return re.sub(r"^\[[\w.]+\] ", "", str(error))


def main(arguments: list[str]) -> int:
    what, text = arguments
    try:
        _backend.check_torch()
        simulation.simulate("1MiB").end()  # this process only simulates, even on a machine with GPUs
        run = Run(json.loads(text))
        run.hand_over({"estimate": estimate, "fit": fit, "profile": profile}[what](run))
        return OK
    except UsageError as error:
        print(f"headroom {what}: {sentence(error)}", file=sys.stderr)
        return USAGE
    except InputError as error:
        print(f"headroom {what}: {sentence(error)}", file=sys.stderr)
        return BAD_INPUT
    except Error as error:
        print(f"headroom {what}: {sentence(error)}", file=sys.stderr)
        return UNAVAILABLE
    except SystemExit as error:
        print(f"headroom {what}: {json.loads(text)['function']} ended the program (SystemExit: {error.code}); "
              "try `if __name__ == \"__main__\":` around the code that runs at start", file=sys.stderr)
        return FAILED
    except Exception as error:  # of the user's program: its traceback shows the place
        traceback.print_exc()
        print(f"headroom {what}: {json.loads(text)['function']} failed: {error}", file=sys.stderr)
        hint = hints.hint_for(error)
        if hint is not None and not hasattr(error, "__notes__"):  # those are in the traceback
            print(hint, file=sys.stderr)
        return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

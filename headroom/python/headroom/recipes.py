"""What `headroom train` trains, step by step from Python."""
from __future__ import annotations

import os
from typing import Any, Sequence, Union

import torch

from headroom import _backend, _engine

_backend.check_torch()


class Recipe:
    """A training that `headroom train` would run: model, data, optimizer, and steps that cannot be lost."""

    def __init__(self, training: _engine.Training) -> None:
        self._training = training

    @property
    def steps(self) -> int:
        """Of the whole training."""
        return self._training.steps()

    @property
    def steps_done(self) -> int:
        return self._training.done()

    def step(self) -> float:
        """Runs the next step and returns its loss. If memory runs out, it runs again with less; see
        docs/guides/train.md. Raises torch.OutOfMemoryError if no plan is left, and the step has not begun."""
        return self._training.step()

    def named_parameters(self) -> dict[str, torch.Tensor]:
        """The model's own parameters, not copies."""
        return dict(self._training.parameters())

    def save(self, folder: Union[str, os.PathLike[str]]) -> None:
        """Saves what was trained as `headroom train` does: an adapter as peft's files, or safetensors with a
        config.json."""
        self._training.save(os.fspath(folder))

    def __repr__(self) -> str:
        return f"Recipe(step {self.steps_done} of {self.steps})"


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def recipe(*settings: str, device: Union[str, torch.device, Sequence[Union[str, torch.device]]] = "cpu",
           **keys: Any) -> Recipe:
    """Makes what `headroom train` trains with these keys (`headroom train --help-keys`).

        recipe = headroom.recipe("model.config=gpt2", model="lora", dataset="tokens", data_dir="books", device="cuda:0")
        for _ in range(10):
            print(recipe.step())
        recipe.save("adapter")

    The weights are those of the command with the same keys after as many steps, to the bit. With replicas=2 or
    stages=2 `device` is a list: the stages of the first replica, then those of the second."""
    words = [*settings, *(f"{key}={_text(value)}" for key, value in keys.items())]
    devices = [device] if isinstance(device, (str, torch.device)) else device
    return Recipe(_engine.Training(words, [str(one) for one in devices]))

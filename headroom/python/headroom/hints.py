"""Hints for a user's code that fails because it runs on a simulated card."""
from __future__ import annotations

import contextlib
import traceback
from typing import Iterator, Optional

from headroom.card import cards
from headroom.errors import Error

NO_CUDA = ("Found no NVIDIA driver", "Torch not compiled with CUDA enabled", "No CUDA GPUs are available",
           "torch.cuda.is_available() is False")
TWO_DEVICES = ("two devices", "all tensors to be on the same device")
OF_SHAPES = "expected values, on which the shape of the result depends"
NO_FLEX = "FlexAttention is only supported on"
OF_VALUES = (ArithmeticError, AssertionError, LookupError, ValueError)


def _decided() -> int:
    """The number of unknown values that the program has read alone, on the cards of this process."""
    return sum(card.decided_by_unknown for card in cards())


def _in_experts(error: BaseException) -> bool:
    owners = (type(frame.f_locals.get("self")).__name__ for frame, _ in traceback.walk_tb(error.__traceback__))
    return any("Expert" in name or "Moe" in name for name in owners)


def hint_for(error: BaseException) -> Optional[str]:
    text = str(error)
    if NO_FLEX in text:
        return ("torch has no FlexAttention for simulated cards; try scaled_dot_product_attention, or "
                "attn_implementation=\"sdpa\" for a model of transformers")
    if OF_SHAPES in text and _in_experts(error):
        return ("Which tokens an expert gets is a matter of values, and none are computed here; try "
                "experts_implementation=\"grouped_mm\", the default of transformers 5, which runs all experts "
                "at once")
    if isinstance(error, OF_VALUES) and not isinstance(error, Error) and (count := _decided()):
        return (f"No values are computed here: the program read {count} unknown values (.item(), if), each "
                "as zero, which may cause this error; try code that accepts a zero, or "
                "headroom.simulate(..., mode=\"compute\")")
    if any(words in text for words in NO_CUDA):
        return ("Headroom runs this on a simulated card, \"sim\", not on CUDA; try leaving the device out "
                "(the card is the default), x.device of a tensor of the batch, or a parameter device= of "
                "the function that `headroom estimate` calls")
    if any(words in text for words in TWO_DEVICES):
        return ("A tensor that was made without a device is on the CPU here, as with a real GPU; try "
                "device=x.device of a tensor of the batch or the model. Or functions of the model use the "
                "original instead of the copy that ran; try a function that makes the model")
    return None


@contextlib.contextmanager
def added() -> Iterator[None]:
    """Adds the hint as a note under the error's traceback; the error itself does not change."""
    try:
        yield
    except Exception as error:
        hint = hint_for(error)
        if hint is not None and hasattr(error, "add_note"):  # since Python 3.11
            if hint not in getattr(error, "__notes__", []):
                error.add_note(hint)
        raise

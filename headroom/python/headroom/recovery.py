"""Runs a function again after it has run out of memory, with a smaller batch or as it is.

    handler = headroom.OomHandler(initial_batch_size=128, min_batch_size=4)
    for epoch in range(epochs):
        loss = handler.run(train_epoch)          # train_epoch(batch_size)

    @headroom.retry_on_oom(max_retries=3)
    def load(): ...

    headroom.adaptive_batch_training(train)      # train(batch_size)

The function runs again from its start, and nothing is undone: parameters that it has updated stay updated, gradients
stay, random numbers stay used, and a loop over data begins anew. A smaller batch also trains differently. So the
function should make what it changes, or load it. Out of memory may be a card or the host (is_oom); every other
exception passes through. The rules and defaults are those of train/retry.h in C++."""
from __future__ import annotations

import functools
import sys
import traceback
from typing import Any, Callable, Optional, TypeVar, Union

from headroom.errors import UsageError
from headroom.failures import classify_exception

Result = TypeVar("Result")
Tell = Callable[[str], Any]


def _say(line: str) -> None:
    print(f"headroom: {line}", file=sys.stderr)


def _attempt(call: Callable[[], Result]) -> tuple[Optional[Result], Optional[Exception]]:
    """What it returned, or the out-of-memory by which it failed, whose frames no longer hold its tensors."""
    try:
        return call(), None
    except Exception as error:
        if not classify_exception(error).is_oom:
            raise
        failure = error
    one: Optional[BaseException] = failure
    while one is not None:
        traceback.clear_frames(one.__traceback__)
        one = one.__cause__ or one.__context__
    if "torch" in sys.modules:
        from headroom.memory import clear_gpu_memory
        clear_gpu_memory(force=True)
    return None, failure


class OomHandler:
    """Calls functions of the batch size. After an out-of-memory it calls once more with the same size, because a
    neighbour may have had a short peak, then with half of it, and so on down to `min_batch_size`; then the
    failure itself is raised. The size stays between calls.

    grow_after: calls in a row without an out-of-memory before the size is doubled again, up to the first one;
        0: it stays small.
    sink: gets a line for each further try; by default standard error."""

    def __init__(self, initial_batch_size: int = 128, min_batch_size: int = 4, *, grow_after: int = 0,
                 sink: Optional[Tell] = _say) -> None:
        if not 1 <= min_batch_size <= initial_batch_size:
            raise UsageError("[OomHandler] expected a smallest batch of 1 or more, and a first one not below it, "
                             f"received '{min_batch_size}' and '{initial_batch_size}'")
        if grow_after < 0:
            raise UsageError(f"[OomHandler] expected 0 calls or more before the batch grows, received '{grow_after}'")
        self.batch_size = initial_batch_size
        self._first, self._least, self._grow_after = initial_batch_size, min_batch_size, grow_after
        self._sink = sink
        self._clean_calls = 0  # in a row

    def run(self, function: Callable[..., Result], *arguments: Any, **more: Any) -> Result:
        """function(batch_size, *arguments, **more), and its result."""
        self._grow()
        failures = 0
        while True:
            result, failure = _attempt(lambda: function(self.batch_size, *arguments, **more))
            if failure is None:
                self._clean_calls = 0 if failures else self._clean_calls + 1
                return result  # type: ignore[return-value]
            failures += 1
            if failures > 1 and self.batch_size == self._least:
                raise failure
            before = self.batch_size
            if failures > 1:
                self.batch_size = max(before // 2, self._least)
            _tell(self._sink, failure, f"from its start with batch {self.batch_size}")

    def _grow(self) -> None:
        if self._grow_after and self._clean_calls >= self._grow_after:
            self._clean_calls = 0
            self.batch_size = min(2 * self.batch_size, self._first)


def _tell(sink: Optional[Tell], failure: Exception, how: str) -> None:
    if sink is not None:
        asked = classify_exception(failure).asked
        sink(f"out of memory{'' if asked is None else f' at a request of {asked}'}; the function runs again {how}, "
             "and nothing that it did is undone")


def retry_on_oom(function: Optional[Callable[..., Any]] = None, *, max_retries: int = 3,
                 sink: Optional[Tell] = _say) -> Any:
    """A decorator: the function runs again after an out-of-memory, at most `max_retries` times; then the last failure
    is raised.

        @headroom.retry_on_oom(max_retries=3)
        def load(): ...

        net = headroom.retry_on_oom(load)()"""
    if max_retries < 0:
        raise UsageError(f"[retry_on_oom] expected 0 retries or more, received '{max_retries}'")
    if function is None:
        return functools.partial(retry_on_oom, max_retries=max_retries, sink=sink)
    wrapped = function

    @functools.wraps(wrapped)
    def called(*arguments: Any, **more: Any) -> Any:
        for left in range(max_retries, -1, -1):
            result, failure = _attempt(lambda: wrapped(*arguments, **more))
            if failure is None:
                return result
            if left == 0:
                raise failure
            _tell(sink, failure, "from its start")

    return called


def adaptive_batch_training(function: Callable[..., Result], initial_batch_size: int = 128, min_batch_size: int = 4,
                            *, sink: Optional[Tell] = _say) -> Result:
    """A whole training, function(batch_size), with the largest of these batch sizes that fits:
    OomHandler(...).run(function). Returns the function's result."""
    return OomHandler(initial_batch_size, min_batch_size, sink=sink).run(function)

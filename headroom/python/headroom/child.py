"""Runs work in a child process, because a process has one accelerator and one box.

If there are GPUs that this process may use later, the child is a fork. If this process has used CUDA,
or simulates a box that must not change, the child is a new Python: CUDA does not work in forks, and
after a backward pass torch refuses backward passes in forks. A notebook's classes and lambdas, which a
new Python cannot import, go there by value if cloudpickle is installed. Tensors go without their data,
except whole numbers, by which programs decide."""
from __future__ import annotations

import dataclasses
import io
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from typing import Any, Callable, Iterator, Optional, TypeVar

import torch
from torch import nn

from headroom import _backend, _engine, simulation
from headroom.card import cards, shows_cuda
from headroom.errors import UnavailableError, UsageError

try:
    import cloudpickle  # type: ignore[import-not-found,unused-ignore]
    Pickler = cloudpickle.Pickler
except ImportError:
    cloudpickle, Pickler = None, pickle.Pickler

Result = TypeVar("Result")

# The settings of torch that change memory.
SET_HERE: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp),
    (torch.backends.cuda.cudnn_sdp_enabled, torch.backends.cuda.enable_cudnn_sdp),
    (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
]


def why() -> Optional[str]:
    """The reason why this process cannot make a card now; None: it can."""
    if torch.cuda.is_initialized():
        return "this one has used CUDA"
    if cards():
        return "this one simulates a box"
    if _backend.is_fork():
        return "this one is the fork of one that did"
    return None


def run(function: Callable[..., Result], arguments: dict[str, Any]) -> Result:
    """Calls function(**arguments) in a process that can make a card."""
    reason = why()
    if reason is None and (_backend.is_registered() or not torch.cuda.is_available()):
        return function(**arguments)
    if reason is None:
        try:
            return _in_a_fork(function, arguments)
        except _NoBackward:
            reason = "this one has run a backward pass"
    return call(function, arguments, reason)


def call(function: Callable[..., Result], arguments: dict[str, Any], reason: str) -> Result:
    """Calls function(**arguments) in a new Python. Its exception comes back with the child's traceback as
    cause."""
    with tempfile.TemporaryDirectory(prefix="headroom-") as folder:
        request, answer = os.path.join(folder, "request"), os.path.join(folder, "answer")
        with open(request, "wb") as file:
            file.write(_packed(function, arguments, reason))
        # In its own session the child gets no Ctrl-C: this process does, and then ends the child.
        done = subprocess.run([sys.executable, "-m", __name__, request, answer], check=False,
                              env=_environment(), start_new_session=True)
        if done.returncode != 0:
            raise _no_answer(done.returncode)
        with open(answer, "rb") as file:
            result, error, trace = pickle.load(file)
    if error is not None:
        raise error from ChildTraceback(trace)
    return result  # type: ignore[no-any-return]


class _NoBackward(Exception):
    """torch refuses backward passes in forks of this process."""


def _in_a_fork(function: Callable[..., Result], arguments: dict[str, Any]) -> Result:
    sys.stdout.flush()
    reader, writer = os.pipe()
    with warnings.catch_warnings():  # threads that the child does not need
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        _be_the_fork(writer, lambda: function(**arguments))
    os.close(writer)
    try:
        with open(reader, "rb") as file:
            packed = file.read()
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != 0:
        raise _no_answer(status)
    result, error, trace = pickle.loads(packed)
    if "fork-based multiprocessing" in trace:
        raise _NoBackward
    if error is not None:
        raise error from ChildTraceback(trace)
    return result  # type: ignore[no-any-return]


def _be_the_fork(writer: int, work: Callable[[], Any]) -> None:
    status = 1
    try:
        _engine.be_a_child()
        torch.cuda.is_available = lambda: False  # CUDA does not work in a fork, and optimizers ask for it
        with open(writer, "wb") as file:
            file.write(_packed_answer(_attempt(work), pickle.dumps))  # its classes are ours
        sys.stdout.flush()
        status = 0
    finally:
        os._exit(status)


def _no_answer(status: int) -> UnavailableError:
    return UnavailableError(f"[estimate] expected an answer of the child process, received its end "
                            f"with {status}; try again with more memory if the "
                            "kernel killed it for lack of memory")


class ChildTraceback(Exception):
    """The traceback of the child."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def _environment() -> dict[str, str]:
    """Without the orders of a rehearsal, in which the child would be a rank with a box of its own."""
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    kept = {name: value for name, value in os.environ.items() if name != "HEADROOM_REHEARSAL"}
    return {**kept, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1"}


# ---- There and back


def _packed(function: Callable[..., Any], arguments: dict[str, Any], reason: str) -> bytes:
    try:
        return _bytes(([read() for read, _ in SET_HERE], function, arguments))
    except Exception as error:
        for name, value in _parts(arguments):
            try:
                _bytes(value)
            except Exception as its_own:
                raise UsageError(
                    f"[estimate] expected a {name} that can be sent to a child process, because {reason}, "
                    f"received one that cannot be pickled ({type(its_own).__name__}: {its_own}); try "
                    "leaving that out of it, or a function that makes it there"
                    f"{'' if cloudpickle else ', or pip install cloudpickle'}") from error
        raise


def _parts(arguments: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in arguments.items():
        yield from vars(value).items() if dataclasses.is_dataclass(value) else [(name, value)]


def _bytes(value: Any) -> bytes:
    class Sender(Pickler):  # type: ignore[misc]
        def __init__(self, file: io.BytesIO) -> None:
            super().__init__(file)
            self.buffers: set[int] = set()
            self.otherwise = getattr(super(), "reducer_override", lambda value: NotImplemented)

        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, nn.Module):  # comes before its tensors
                self.buffers.update(map(id, vars(value)["_buffers"].values()))
            if type(value) not in (torch.Tensor, nn.Parameter) or value.layout != torch.strided:
                return self.otherwise(value)
            on_cpu = value.device.type == "cpu"
            is_weight = isinstance(value, nn.Parameter) or (
                id(value) in self.buffers and (value.numel() > _engine.most_known or not on_cpu))
            if is_weight or (not on_cpu and (value.is_floating_point() or value.is_complex()
                                             or value.is_meta)):
                return _shape, (value.shape, value.stride(), value.dtype, value.requires_grad,
                                type(value))
            if on_cpu and not value.requires_grad:
                # In a rehearsal torch.save, by which torch pickles, writes no data.
                return (_of_bytes, (_raw(value), value.shape, value.dtype)) if shows_cuda() else self.otherwise(value)
            return _values, (value.detach().cpu(), value.requires_grad)

    file = io.BytesIO()
    Sender(file).dump(value)
    return file.getvalue()


def _shape(shape: torch.Size, stride: tuple[int, ...], dtype: torch.dtype, requires_grad: bool,
           kind: type[torch.Tensor]) -> torch.Tensor:
    made = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
    return nn.Parameter(made, requires_grad) if kind is nn.Parameter else \
        made.requires_grad_(requires_grad)


def _raw(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def _of_bytes(raw: bytes, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    return torch.frombuffer(bytearray(raw), dtype=dtype).reshape(shape) if raw else torch.empty(shape, dtype=dtype)


def _values(values: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    return values.requires_grad_(requires_grad)


# ---- The child

def _attempt(work: Callable[[], Any]) -> tuple[Any, Optional[BaseException], str]:
    simulation.simulate("1MiB").end()  # registers the name `sim` with torch
    try:
        return work(), None, ""
    except Exception as error:
        return None, error, traceback.format_exc()


def _answer(request: str) -> tuple[Any, Optional[BaseException], str]:
    def work() -> Any:
        function, arguments = _loaded(request)
        return function(**arguments)

    return _attempt(work)


def _loaded(request: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    try:
        with open(request, "rb") as file:
            values, function, arguments = pickle.load(file)
    except Exception as error:
        raise UsageError("[estimate] expected a model, a batch and functions that a child process can load, "
                         f"received some that it cannot ({type(error).__name__}: {error}); try defining "
                         "them in a module that it can import, or in the program itself") from error
    for (_, write), value in zip(SET_HERE, values):
        write(value)
    return function, arguments


def _packed_answer(answer: tuple[Any, Optional[BaseException], str],
                   packer: Callable[[Any], bytes] = _bytes) -> bytes:
    try:
        packed = packer(answer)
        pickle.loads(packed)
        return packed
    except Exception:  # an exception that only its own program can make
        result, error, trace = answer
        return pickle.dumps((None, RuntimeError(f"{type(error).__name__}: {error}"), trace))


if __name__ == "__main__":
    packed = _packed_answer(_answer(sys.argv[1]))
    with open(sys.argv[2], "wb") as file:
        file.write(packed)
    sys.stdout.flush()
    # Without the interpreter's end, in which torch's threads may abort the process: see _backend.register.
    os._exit(0)

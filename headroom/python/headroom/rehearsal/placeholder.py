"""Checkpoints without data: torch.save and safetensors write what the tensors look like, and reading such a file
gives tensors of those shapes."""
from __future__ import annotations

import contextlib
import functools
import io
import os
import pickle
from typing import Any, Iterator, Optional

import torch

from headroom.imports import after_import
from headroom.masquerade.foreign import say_once
from headroom.rehearsal.user_files import UserFiles


MAGIC = b"headroom rehearsal: a checkpoint without its data\n"

MOST_VALUES = 1 << 20  # numbers of a floating-point tensor of the CPU that are kept

_map_location: Any = None
_mark = MAGIC  # with the secret name of this rehearsal: reading a file of somebody else's would run its code


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and not hasattr(value, "_local_tensor"):
            on_cpu = value.device.type == "cpu" and not value.is_meta
            if on_cpu and value.layout == torch.strided and (
                    not value.is_floating_point() or value.numel() <= MOST_VALUES):
                return _values, (tuple(value.shape), value.dtype, value.requires_grad,
                                 type(value) is torch.nn.Parameter, bytes_of(value))
            if value.layout == torch.strided:
                return _tensor, (tuple(value.shape), value.stride(), value.dtype, value.requires_grad,
                                 type(value) is torch.nn.Parameter, str(value.device))
        return NotImplemented


def bytes_of(tensor: torch.Tensor) -> bytes:
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def _values(shape: tuple[int, ...], dtype: torch.dtype, requires_grad: bool, is_parameter: bool,
            data: bytes) -> torch.Tensor:
    made = torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape) if data else torch.empty(shape, dtype=dtype)
    if _map_location is not None and not callable(_map_location) and not isinstance(_map_location, dict):
        made = made.to(_map_location)
    return torch.nn.Parameter(made, requires_grad) if is_parameter else made.requires_grad_(requires_grad)


def _tensor(shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, requires_grad: bool,
            is_parameter: bool, device: str) -> torch.Tensor:
    to = _map_location
    if isinstance(to, dict):
        to = to.get(device)
    if to is None or callable(to):
        to = device
    made = torch.empty_strided(shape, stride, dtype=dtype, device=to)
    return torch.nn.Parameter(made, requires_grad) if is_parameter else made.requires_grad_(requires_grad)


def described(value: Any) -> bytes:
    file = io.BytesIO()
    file.write(_mark)
    try:
        _Pickler(file).dump(value)
    except Exception:  # of a class that cannot be pickled: nobody will read it in a rehearsal
        return _mark + pickle.dumps(None)
    return file.getvalue()


def is_one(file: Any) -> bool:
    """True if a file, at its position, is such a checkpoint of this rehearsal."""
    if not (hasattr(file, "read") and hasattr(file, "seek")):
        return False
    at = file.tell()
    begin = file.read(len(_mark))
    file.seek(at)
    return bool(begin == _mark)


def loaded(file: Any, map_location: Any = None) -> Any:
    global _map_location
    file.seek(len(_mark), os.SEEK_CUR)
    _map_location = map_location
    try:
        return pickle.load(file)
    finally:
        _map_location = None


def install(files: UserFiles) -> None:
    global _mark
    _mark = MAGIC + files.secret.encode() + b"\n"
    save, load = torch.save, torch.load

    def save_description(obj: Any, f: Any, *arguments: Any, **more: Any) -> None:
        say_once("checkpoints are not written")
        if hasattr(f, "write"):
            if files.computes:
                return save(obj, f, *arguments, **more)
            f.write(described(obj))
            return None
        path = files.checkpoint(f)
        if files.computes:
            return save(obj, path, *arguments, **more)
        with files.open(path, "wb") as file:
            file.write(described(obj))
        return None

    def load_description(f: Any, map_location: Any = None, *arguments: Any, **more: Any) -> Any:
        with _opened(files, f) as file:
            if file is not None and is_one(file):
                return loaded(file, map_location)
        if isinstance(f, (str, os.PathLike)):
            f = files.read(f)
            if not files.computes and more.get("mmap") is None and _is_zip(f):
                more["mmap"] = True  # only what is used is read
        return load(f, map_location, *arguments, **more)

    torch.save = torch.serialization.save = save_description
    torch.load = torch.serialization.load = load_description
    if files.computes:
        after_import("safetensors", lambda module: _read_what_was_written(files, module))
    after_import("safetensors.torch", lambda module: _of_safetensors(files, module))


def _read_what_was_written(files: UserFiles, module: Any) -> None:
    real = module.safe_open

    @functools.wraps(real)
    def safe_open(filename: Any, *arguments: Any, **more: Any) -> Any:
        return real(files.read(filename), *arguments, **more)

    module.safe_open = safe_open


def _is_zip(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"PK"


@contextlib.contextmanager
def _opened(files: UserFiles, f: Any) -> Iterator[Optional[Any]]:
    if not isinstance(f, (str, os.PathLike)):
        yield f
        return
    path = files.read(f)
    if not os.path.isfile(path):
        yield None
        return
    with files.open(path, "rb") as file:
        yield file


def _of_safetensors(files: UserFiles, module: Any) -> None:
    save_file, load_file = module.save_file, module.load_file

    def save_description(tensors: Any, filename: Any, *arguments: Any, **more: Any) -> None:
        say_once("checkpoints are not written")
        path = files.checkpoint(filename)
        if files.computes:
            return save_file(tensors, path, *arguments, **more)
        with files.open(path, "wb") as file:
            file.write(described(dict(tensors)))
        return None

    def load_description(filename: Any, device: Any = "cpu", **more: Any) -> Any:
        with _opened(files, filename) as file:
            if file is not None and is_one(file):
                return loaded(file, device)
        return load_file(files.read(filename), device, **more)

    module.save_file, module.load_file = save_description, load_description

"""Models on the CPU cost neither time nor memory: nearly every script builds or loads one there and then moves it.

Memory that was never written is free, so what would write large floating-point tensors on the CPU does nothing:
initialisation, copies from checkpoints, changes of type. They read as zeros, as everything on a card does. Files of
weights are read by their header."""
from __future__ import annotations

import ctypes
import functools
import json
import os
import struct
from typing import Any, Callable, Iterator, Optional, Union

import torch
from torch import nn

from headroom.imports import after_import
from headroom.rehearsal import placeholder
from headroom.rehearsal.user_files import UserFiles

LARGE = 1 << 16  # elements; smaller ones are made as always

def _is_large(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.numel() >= LARGE and type(tensor) in (
        torch.Tensor, nn.Parameter) and tensor.is_floating_point() and tensor.device.type == "cpu" and \
        not tensor.is_meta


_MMAP_THRESHOLD, _MMAP_MAX = -3, -4  # of mallopt(3)


def _take_fresh_memory() -> None:
    """Large blocks come from the system, as zeros that cost nothing until they are written, and go back to it.
    By itself the C library keeps freed ones, with what was in them."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 2 * LARGE)
        mallopt(_MMAP_MAX, 1 << 30)


def install(files: UserFiles) -> None:
    _take_fresh_memory()
    _initialisation()
    _conversions()
    _storages()
    after_import("safetensors", lambda module: setattr(module, "safe_open", _opener(files, module.safe_open)))


def _skipping(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def skip(tensor: Any, *arguments: Any, **more: Any) -> Any:
        return tensor if _is_large(tensor) else function(tensor, *arguments, **more)
    return skip


def _initialisation() -> None:
    for name in dir(nn.init):
        if name.endswith("_") and not name.startswith("_"):
            setattr(nn.init, name, _skipping(getattr(nn.init, name)))
    for name in ("normal_", "uniform_", "exponential_", "erfinv_", "zero_", "fill_", "copy_"):
        setattr(torch.Tensor, name, _skipping(getattr(torch.Tensor, name)))


def _conversions() -> None:
    def to_type(function: Callable[..., Any], dtype: Optional[torch.dtype]) -> Callable[..., Any]:
        @functools.wraps(function)
        def converted(self: torch.Tensor, *arguments: Any, **more: Any) -> Any:
            if not _is_large(self) or (self.requires_grad and torch.is_grad_enabled()):
                return function(self, *arguments, **more)
            to = dtype or _only_a_type(arguments, more)
            if to is None or to == self.dtype:
                return function(self, *arguments, **more)
            return torch.empty_like(self, dtype=to, requires_grad=False)
        return converted

    for name, dtype in (("to", None), ("half", torch.float16), ("bfloat16", torch.bfloat16),
                        ("float", torch.float32), ("double", torch.float64)):
        setattr(torch.Tensor, name, to_type(getattr(torch.Tensor, name), dtype))


def _only_a_type(arguments: tuple[Any, ...], more: dict[str, Any]) -> Optional[torch.dtype]:
    """The type to which `to` converts a tensor that stays on the CPU; None: it does more."""
    found: Optional[torch.dtype] = None
    for one in (*arguments, *(more.get(name) for name in ("device", "dtype"))):
        if isinstance(one, torch.dtype):
            found = one
        elif isinstance(one, (str, torch.device)) and torch.device(one).type == "cpu":
            continue
        elif one is not None and not isinstance(one, bool):
            return None
    return found if found is not None and found.is_floating_point else None


def _storages() -> None:
    """A copy of a large storage of the CPU (deepcopy) is not written."""
    clone = torch.UntypedStorage.clone

    def clone_hollow(self: torch.UntypedStorage) -> torch.UntypedStorage:
        if self.device.type == "cpu" and self.nbytes() >= 4 * LARGE:
            return torch.UntypedStorage(self.nbytes())
        return clone(self)

    torch.UntypedStorage.clone = clone_hollow  # type: ignore[method-assign]


# ---- Weights: safetensors

_TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
          "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
          "BOOL": torch.bool, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
          "U16": torch.uint16, "U32": torch.uint32, "U64": torch.uint64}


class _Slice:
    """As safe_open's get_slice."""

    def __init__(self, entry: dict[str, Any], device: Any) -> None:
        self._entry, self._device = entry, device

    def get_shape(self) -> list[int]:
        return list(self._entry["shape"])

    def get_dtype(self) -> str:
        return str(self._entry["dtype"])

    def __getitem__(self, at: Any) -> torch.Tensor:
        return torch.empty(self._entry["shape"], dtype=_TYPES[self._entry["dtype"]], device=self._device)[at]


class _Header:
    """A file of safetensors of which only the header is read."""

    def __init__(self, path: str, device: Any) -> None:
        self._device = "cpu" if device is None else device
        with open(path, "rb") as file:
            if placeholder.is_one(file):
                tensors: dict[str, torch.Tensor] = placeholder.loaded(file, "meta") or {}
                names = {dtype: name for name, dtype in _TYPES.items()}
                self._entries: dict[str, Any] = {
                    name: {"shape": list(one.shape), "dtype": names[one.dtype]} for name, one in tensors.items()}
                self._metadata: Optional[dict[str, str]] = {"format": "pt"}
                return
            length, = struct.unpack("<Q", file.read(8))
            self._entries = json.loads(file.read(length))
        self._metadata = self._entries.pop("__metadata__", None)

    def __enter__(self) -> _Header:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def keys(self) -> list[str]:
        return list(self._entries)

    def offset_keys(self) -> list[str]:
        return self.keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def metadata(self) -> Optional[dict[str, str]]:
        return self._metadata

    def get_slice(self, name: str) -> _Slice:
        return _Slice(self._entries[name], self._device)

    def get_tensors(self, names: Optional[list[str]] = None) -> dict[str, torch.Tensor]:
        return {name: self.get_tensor(name) for name in (self._entries if names is None else names)}

    def get_tensor(self, name: str) -> torch.Tensor:
        return self.get_slice(name)[...]


def _opener(files: UserFiles, real: Any) -> Callable[..., Any]:
    @functools.wraps(real)
    def safe_open(filename: Union[str, os.PathLike[str]], framework: str = "pt", device: Any = "cpu",
                  **more: Any) -> Any:
        path = files.read(filename)
        if framework not in ("pt", "torch", "pytorch"):
            return real(path, framework, device, **more)
        return _Header(path, device)
    return safe_open

"""Sizes of memory: whole bytes that print in the usual units."""
from __future__ import annotations

from typing import Union

from headroom import _core


class Bytes(int):
    """A number of bytes.

    >>> Bytes(6871947674)
    6.40 GiB
    >>> Bytes("10GiB") + 1
    10737418241
    """

    def __new__(cls, size: int | float | str = 0) -> Bytes:
        return super().__new__(cls, _core.parse_size(size) if isinstance(size, str) else size)

    @property
    def mib(self) -> float:
        return self / 2**20

    @property
    def gib(self) -> float:
        return self / 2**30

    def __str__(self) -> str:
        return _core.size_text(self)

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(int(self), spec) if spec else str(self)


Size = Union[int, str]
"""Bytes as a number, or a text such as "10GiB" or "512MB"."""

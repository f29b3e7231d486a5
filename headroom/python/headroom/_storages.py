"""Python's storages on simulated cards. torch takes a storage without data for a broken one and refuses
calls that programs make: the address (to find shared memory), resize (FSDP allocates and frees this
way), copy (deepcopy, torch.save), write."""
from __future__ import annotations

from typing import Any

import torch

from headroom import _engine
from headroom.card import lies_on_card

Storage = torch.UntypedStorage


def _as_bytes(storage: Storage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def bend() -> None:
    """Patches torch, once a process. Storages of other devices take torch's own functions."""
    data_ptr, resize, copy, write = Storage.data_ptr, Storage.resize_, Storage.copy_, Storage._write_file
    tensor_data_ptr = torch.Tensor.data_ptr

    def data_ptr_on_card(self: Storage) -> int:
        """The address in the card's allocator."""
        return _engine.address_of(self) or 0 if lies_on_card(self) else data_ptr(self)

    def tensor_data_ptr_on_card(self: torch.Tensor) -> int:
        if not lies_on_card(self) or type(self) not in (torch.Tensor, torch.nn.Parameter):
            return tensor_data_ptr(self)
        base = data_ptr_on_card(self.untyped_storage())
        return base and base + int(self.storage_offset()) * self.element_size()

    def resize_on_card(self: Storage, size: int) -> Storage:
        if not lies_on_card(self):
            return resize(self, size)
        _engine.resize_storage(self, size)
        return self

    def copy_on_card(self: Storage, source: Storage, non_blocking: bool = False) -> Storage:
        """Unknown values become zero on the host."""
        if not lies_on_card(self) and not lies_on_card(source):
            return copy(self, source, non_blocking)
        with torch.no_grad():
            _as_bytes(self).copy_(_as_bytes(source))
        return self

    def write_from_card(self: Storage, *file: Any) -> None:
        write(self.cpu() if lies_on_card(self) else self, *file)

    Storage.data_ptr = data_ptr_on_card  # type: ignore[assignment, method-assign]
    Storage.resize_ = resize_on_card  # type: ignore[assignment, method-assign]
    Storage.copy_ = copy_on_card  # type: ignore[assignment, method-assign]
    Storage._write_file = write_from_card  # type: ignore[assignment, method-assign]
    torch.Tensor.data_ptr = tensor_data_ptr_on_card  # type: ignore[assignment, method-assign]

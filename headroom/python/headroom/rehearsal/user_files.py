"""Keeps the user's files as they are while a script runs that knows nothing of it.

A file that was there before the start is never changed or removed: what the script would write into it goes to
a copy, which the script reads from then on, and a removal is skipped; renames.py has renames. Checkpoints get a
description of their tensors in place of data (`placeholder.py`); `headroom rehearse` removes these files at the
end. Other new files are the script's own. All this holds for what Python writes, not for programs that the script
starts."""
from __future__ import annotations

import builtins
import errno
import functools
import io
import os
import pathlib
import shutil
import stat
import sys
import threading
from typing import Any, Callable, Optional

from headroom.masquerade.foreign import say_once
from headroom.rehearsal.orders import Orders

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND | os.O_CREAT


_resolving = threading.local()  # while a path is resolved, which looks at its parts


def path_of(given: Any) -> Optional[str]:
    """The one name of a file: absolute, without links on the way to it. None for a descriptor."""
    if isinstance(given, int):
        return None
    try:
        path = os.path.abspath(os.fsdecode(os.fspath(given)))
    except TypeError:
        return None
    return os.path.join(_resolved(os.path.dirname(path)), os.path.basename(path))


def _resolved(path: str) -> str:
    _resolving.now = True
    try:
        return os.path.realpath(path)
    finally:
        _resolving.now = False


class UserFiles:
    def __init__(self, orders: Orders) -> None:
        self.secret = os.path.basename(orders.folder)  # no other rehearsal has it
        self._scratch = os.path.join(orders.folder, f"scratch-{os.getpid()}")
        # By all processes: "f PATH", "d PATH", and "l PATH" for a new name of what was there.
        self._log = os.path.join(orders.folder, "created")
        self._created: dict[str, str] = {}  # the last letter of each path
        self._read = 0
        self.diverted: dict[str, str] = {}  # of names that were there: where their new contents are
        self._copies = 0
        self._skipped: list[str] = []
        self._removed: set[str] = set()  # what the script takes for removed
        self._stat, self._lstat = os.stat, os.lstat
        self.computes = orders.mode == "compute"
        self.open = builtins.open

    def guard(self) -> None:
        """From now on files are opened, removed and listed as this module says."""
        self._guard_files()
        self._guard_removals()
        self._hide_removed()

    def not_written(self) -> list[str]:
        return [os.path.relpath(one) for one in self._skipped]

    # ---- What was there before

    def note(self, kind: str, path: str) -> None:
        self._created[path] = kind
        with self.open(self._log, "a", encoding="utf-8", errors="surrogateescape") as log:
            log.write(f"{kind} {path}\n")

    def _is_new(self, path: str) -> bool:
        """True for what a process of this rehearsal has made."""
        if path not in self._created and os.path.exists(self._log):
            with self.open(self._log, encoding="utf-8", errors="surrogateescape") as log:
                log.seek(self._read)
                self._created.update((line.rstrip("\n")[2:], line[0]) for line in iter(log.readline, ""))
                self._read = log.tell()
        return path in self._created

    def was_there(self, path: str) -> bool:
        try:
            found = self._lstat(path)
        except OSError:
            return False
        kinds = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode) or stat.S_ISLNK(found.st_mode)
        return kinds and not path.startswith(("/proc/", "/dev/", "/sys/")) and not self._is_new(path)

    def is_link(self, path: str) -> bool:
        return self._created.get(path) == "l"

    def is_removed(self, path: str) -> bool:
        return bool(self._removed) and path not in self.diverted and any(
            path == one or path.startswith(one + os.sep) for one in self._removed)

    def skip(self, path: str) -> None:
        if path not in self._skipped:
            self._skipped.append(path)
            say_once("existing files stay as they are; those that the script writes into, or removes, are listed "
                     "at the end")

    # ---- Writing

    def written(self, path: str, keeps: bool = False) -> str:
        """Where to write a file: its own path, or that of a copy if it was there. `keeps`: its old contents."""
        if path in self.diverted:
            return self.diverted[path] if self.is_copy(self.diverted[path]) else self.divert(path, keeps)
        if self.was_there(path) or self._leads_to_what_was_there(path):
            return self.divert(path, keeps)
        self.note("f", path)
        return path

    def _leads_to_what_was_there(self, path: str) -> bool:
        """True for a link of the script's own to a file of the user's."""
        try:
            found = self._lstat(path)
        except OSError:
            return False
        if stat.S_ISLNK(found.st_mode):
            return self.was_there(_resolved(path))
        return stat.S_ISREG(found.st_mode) and found.st_nlink > 1

    def divert(self, path: str, keeps: bool = False) -> str:
        copy, before = self.new_copy(path), self.diverted.get(path, path)
        if keeps and not self.is_removed(path) and self._is_file(before):
            with self.open(before, "rb") as old, self.open(copy, "wb") as new:
                shutil.copyfileobj(old, new)
        else:
            self.open(copy, "wb").close()
        self.lead(path, copy)
        return copy

    def _is_file(self, path: str) -> bool:
        try:
            return stat.S_ISREG(self._stat(path).st_mode)
        except OSError:
            return False

    def new_copy(self, path: str) -> str:
        os.makedirs(self._scratch, exist_ok=True)
        self._copies += 1
        return os.path.join(self._scratch, f"{self._copies}-{os.path.basename(path)}")

    def is_copy(self, path: str) -> bool:
        return path.startswith(self._scratch + os.sep)

    def lead(self, path: str, to: str) -> None:
        """What is read as `path`, which was there, is in `to` from now on."""
        self._removed.discard(path)
        self.diverted[path] = to
        if not path.endswith(".lock"):
            self.skip(path)

    def read(self, file: Any) -> str:
        """Where the contents of a file are that the script reads."""
        path = path_of(file) or ""
        return self.diverted.get(path, path)

    def checkpoint(self, file: Any) -> str:
        """As written(). In compute mode no checkpoint gets into the user's folders."""
        path = path_of(file) or ""
        return self.divert(path) if self.computes and path not in self.diverted else self.written(path)

    def _guard_files(self) -> None:
        real_open, real_os_open = builtins.open, os.open

        @functools.wraps(real_open)
        def open(file: Any, mode: str = "r", *arguments: Any, **more: Any) -> Any:
            path = path_of(file)
            if path is None or not isinstance(mode, str):
                return real_open(file, mode, *arguments, **more)
            if "x" in mode and os.path.lexists(path):
                return real_open(file, mode, *arguments, **more)
            writes = any(letter in mode for letter in "wax+")
            if not writes and self.is_removed(path):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file)
            to = self.written(path, keeps="w" not in mode) if writes and "opener" not in more else self.read(path)
            return real_open(file if to == path else to, mode, *arguments, **more)

        @functools.wraps(real_os_open)
        def os_open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: Optional[int] = None) -> int:
            full = path_of(path) if dir_fd is None else None
            if full is None or (flags & os.O_EXCL and os.path.lexists(full)):
                return real_os_open(path, flags, mode, dir_fd=dir_fd)
            to = self.written(full, keeps=not flags & os.O_TRUNC) \
                if flags & _WRITES and not os.path.isdir(full) else self.read(full)
            return real_os_open(to, flags, mode)

        builtins.open = io.open = open  # type: ignore[assignment]
        os.open = os_open  # type: ignore[assignment]

    # ---- Removing

    def vanish(self, path: str) -> None:
        """What was there is gone for the script, with what it wrote into it."""
        for one in [one for one in self.diverted if one == path or one.startswith(path + os.sep)]:
            del self.diverted[one]
        self._removed.add(path)
        self.skip(path)

    def reappear(self, path: str, names: Callable[[str], list[str]]) -> bool:
        """A folder that vanished is made again, empty; False for another path."""
        if path not in self._removed or not stat.S_ISDIR(self._lstat(path).st_mode):
            return False
        self._removed.remove(path)
        self._removed.update(os.path.join(path, name) for name in names(path))
        return True

    def _guard_removals(self) -> None:
        def removing(real: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(real)
            def remove(path: Any, *arguments: Any, **more: Any) -> Any:
                full = path_of(path) if more.get("dir_fd") is None else None
                if full is None or not self.was_there(full):
                    self.diverted.pop(full or "", None)
                    return real(path, *arguments, **more)
                if self.is_removed(full):
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
                return self.vanish(full)
            return remove

        def truncating(real: Callable[..., Any]) -> Callable[..., Any]:
            def truncate(path: Any, length: int) -> None:
                full = path_of(path)
                real(path if full is None else self.written(full, keeps=True), length)
            return truncate

        def changing(real: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(real)
            def change(path: Any, *arguments: Any, **more: Any) -> Any:
                full = path_of(path) if more.get("dir_fd") is None else None
                if full is not None and (self.was_there(full) or self._leads_to_what_was_there(full)):
                    return self.skip(full)
                return real(path, *arguments, **more)
            return change

        def linking(real: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(real)
            def link(source: Any, target: Any, *arguments: Any, **more: Any) -> Any:
                real(source, target, *arguments, **more)
                if (full := path_of(target)) is not None:
                    self.note("f", full)
            return link

        for name in ("chmod", "chown", "utime"):
            setattr(os, name, changing(getattr(os, name)))
        for name in ("symlink", "link"):
            setattr(os, name, linking(getattr(os, name)))
        for name in ("remove", "unlink", "rmdir"):
            setattr(os, name, removing(getattr(os, name)))
        os.truncate = truncating(os.truncate)  # type: ignore[assignment]
        shutil.rmtree = removing(shutil.rmtree)  # type: ignore[assignment]
        if sys.version_info < (3, 11):  # where pathlib has its own references
            for name in ("unlink", "rmdir", "rename", "replace", "mkdir", "open"):
                setattr(pathlib._NormalAccessor, name,  # type: ignore[attr-defined]
                        staticmethod(getattr(os if name != "open" else io, name)))

    def _hide_removed(self) -> None:
        """A script that removes the oldest of its files until few are left sees them go."""
        real_scandir = os.scandir

        def looking(real: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(real)
            def look(path: Any, *arguments: Any, **more: Any) -> Any:
                if (self._removed or self.diverted) and more.get("dir_fd") is None and \
                        not getattr(_resolving, "now", False):
                    full = path_of(path)
                    if full is not None and self.is_removed(full):
                        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
                    path = self.diverted.get(full or "", path)
                return real(path, *arguments, **more)
            return look

        def listing(real: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(real)
            def names(path: Any = ".") -> Any:
                found = real(path)
                full = path_of(path) if self._removed else None
                return found if full is None else [
                    one for one in found if not self.is_removed(os.path.join(full, os.fsdecode(one)))]
            return names

        class Entries:
            def __init__(self, files: UserFiles, path: Any) -> None:
                self._real = real_scandir(path)
                self._files, self._folder = files, path_of(path)

            def __iter__(self) -> Any:
                return self

            def __next__(self) -> Any:
                while True:
                    entry = next(self._real)
                    if self._folder is None or not self._files.is_removed(
                            os.path.join(self._folder, os.fsdecode(entry.name))):
                        return entry

            def __enter__(self) -> Any:
                return self

            def __exit__(self, *error: Any) -> None:
                self.close()

            def close(self) -> None:
                self._real.close()

        for name in ("stat", "lstat"):
            setattr(os, name, looking(getattr(os, name)))
        os.listdir = listing(os.listdir)  # type: ignore[assignment]
        os.scandir = lambda path=".": Entries(self, path) if self._removed else \
            real_scandir(path)  # type: ignore[assignment]

    def moved(self, of: str, to: str) -> None:
        """What was new stays new under its new name, with all that is in it."""
        for path in [one for one in self._created if one == of or one.startswith(of + os.sep)]:
            if path in self.diverted:
                self.diverted[to + path[len(of):]] = self.diverted.pop(path)
            if os.path.lexists(to + path[len(of):]):
                self.note(self._created[path], to + path[len(of):])

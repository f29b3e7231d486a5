"""Renames of files that were there: each keeps its place, and the script finds it under its new name alone.

A new name is a hard link to the file (a symbolic one where that is refused), which `headroom rehearse` removes at
the end; what is written through it goes to a copy (user_files.py). Where a file of the user's has the new name, that
file stays, too, and reads of the name are led to the contents."""
from __future__ import annotations

import errno
import functools
import os
import shutil
from typing import Any, Callable

from headroom.rehearsal.user_files import UserFiles, path_of


class Renames:
    """Made before UserFiles.guard(), as it keeps the functions that really remove and list."""
    def __init__(self, files: UserFiles) -> None:
        self._files = files
        self._rename, self._link, self._mkdir, self._rmdir = os.rename, os.link, os.mkdir, os.rmdir
        self._unlink, self._listdir = os.unlink, os.listdir
        for name in ("rename", "replace"):
            setattr(os, name, self._moving(getattr(os, name)))
        os.mkdir = self._making(os.mkdir)

    def _moving(self, real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def move(source: Any, target: Any, *arguments: Any, **more: Any) -> Any:
            of, to = path_of(source), path_of(target)
            if of is None or to is None or more.get("src_dir_fd") is not None or of == to:
                return real(source, target, *arguments, **more)
            files = self._files
            if files.is_removed(of):
                raise _error(errno.ENOENT, source)
            if not any(one in files.diverted or files.was_there(one) for one in (of, to)):
                real(source, target, *arguments, **more)
                return files.moved(of, to)
            if os.path.isdir(of) and os.path.exists(to) and (not os.path.isdir(to) or os.listdir(to)):
                raise _error(errno.ENOTEMPTY if os.path.isdir(to) else errno.ENOTDIR, target)
            if not os.path.isdir(of) and os.path.isdir(to):
                raise _error(errno.EISDIR, target)
            return self._bring(of, to)
        return move

    def _bring(self, of: str, to: str) -> None:
        """Makes `to` read as `of` does, and `of` vanish."""
        files = self._files
        if os.path.isdir(of) and not os.path.islink(of):
            if not os.path.isdir(to):
                os.mkdir(to)
            for name in os.listdir(of):
                self._bring(os.path.join(of, name), os.path.join(to, name))
            if not files.was_there(of):
                return self._rmdir(of)
        else:
            self._bring_file(of, to)
        if files.was_there(of):
            files.vanish(of)
        return None

    def _bring_file(self, of: str, to: str) -> None:
        files = self._files
        contents = files.diverted.pop(of, of)
        is_ours = contents != of and files.is_copy(contents) or contents == of and not files.was_there(of)
        if files.was_there(to):
            if is_ours and contents == of:
                contents = files.new_copy(to)
                self._carry(of, contents, copies=files.is_link(of))
            files.lead(to, contents)
            return
        files.diverted.pop(to, None)
        if os.path.lexists(to):
            self._unlink(to)
        if is_ours:
            self._carry(contents, to)
            files.moved(of, to) if contents == of else files.note("f", to)
        else:
            self._link_to(contents, to)

    def _carry(self, of: str, to: str, copies: bool = False) -> None:
        if not copies:
            try:
                return self._rename(of, to)
            except OSError:  # another file system
                pass
        shutil.copyfile(of, to)
        return self._unlink(of)

    def _link_to(self, of: str, to: str) -> None:
        try:
            self._link(of, to)
        except OSError:  # another file system, or a file of another user
            os.symlink(of, to)
        self._files.note("l", to)

    def _making(self, real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def mkdir(path: Any, *arguments: Any, **more: Any) -> None:
            full = path_of(path) if more.get("dir_fd") is None else None
            if full is not None and self._files.reappear(full, self._listdir):
                return
            real(path, *arguments, **more)
            if full is not None:
                self._files.note("d", full)
        return mkdir


def _error(number: int, file: Any) -> OSError:
    return OSError(number, os.strerror(number), file)

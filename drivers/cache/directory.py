"""Where the disk cache lies, and whether that place can be trusted.

A directory is opened for each use and checked once it is open: it is a directory and no link, it belongs to us, and no other user may write in it. All
further accesses go through the open directory, so moving or replacing it meanwhile has no effect. On Windows, whose permissions these checks cannot see, a
directory is found by its path, and is as private as the folder that contains it.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from vyre_py.drivers.errors import CacheError
from vyre_py.ir.imports import importing
from vyre_py.ir.public import public

__all__ = ["CHECKED", "CacheWarning", "Directory", "Folder", "close", "default_path"]

CHECKED: Final = os.name == "posix"  # whether owners and modes mean anything

# What each system has of: not a link, not waiting for the other end of a FIFO, not passed to other programs, and bytes as they are.
_OPEN: Final = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY", "O_NOINHERIT"))
_OPEN_DIRECTORY: Final = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC"))
_BY_HANDLE: Final = os.open in os.supports_dir_fd


@public
class CacheWarning(UserWarning):
    """A directory of the disk cache is not used; code is compiled again in each process."""


def default_path() -> Path | None:
    """Where the cache lies unless the program says otherwise: `VYRE_CACHE_DIR`; else `vyre-py/v1` in `XDG_CACHE_HOME`, in `~/.cache`, or in what the
    platform has for caches. None where there is no home directory.

    Raises CacheError where `VYRE_CACHE_DIR` is set and empty.
    """
    given = os.environ.get("VYRE_CACHE_DIR")
    if given is not None:
        if not given.strip():
            raise CacheError("VYRE_CACHE_DIR is set and empty", remedy="give it a directory, or unset it; VYRE_CACHE_LIMIT=0 turns the disk cache off")
        return Path(given).absolute()
    home = os.environ.get("XDG_CACHE_HOME", "")
    if Path(home).is_absolute():  # the specification has relative ones ignored
        return Path(home) / "vyre-py" / "v1"
    home = os.environ.get("HOME", "")
    if sys.platform == "linux" and Path(home).is_absolute():
        return Path(home) / ".cache" / "vyre-py" / "v1"
    with importing:
        import platformdirs  # other systems alone need it

    path = Path(platformdirs.user_cache_dir("vyre-py", appauthor=False)) / "v1"
    return path if path.is_absolute() else None


def close(file: int) -> None:
    """Closes what nothing was written to: if the system finds fault with that, nothing is lost."""
    try:  # noqa: SIM105 - a block of `suppress` takes longer than the call, and each hit makes two
        os.close(file)
    except OSError:
        pass


class Folder:
    """A directory that was opened and found good; every name is one in it. To be closed.

    `owner` is whose files are believed, `writable` whether it may be changed. All methods but `discard` and `close` raise OSError.
    """

    __slots__ = ("_handle", "_prefix", "owner", "writable")

    def __init__(self, path: Path, handle: int | None, owner: int, writable: bool) -> None:
        self._handle = handle
        self._prefix = "" if handle is not None else f"{path}{os.sep}"
        self.owner = owner
        self.writable = writable

    def open(self, name: str, flags: int) -> int:
        """A file's descriptor; one that is made is private."""
        return os.open(self._prefix + name, flags | _OPEN, 0o600, dir_fd=self._handle)

    def status(self, name: str) -> os.stat_result:
        """The status of a name, links not followed."""
        return os.stat(self._prefix + name, dir_fd=self._handle, follow_symlinks=False)

    def rename(self, old: str, new: str) -> None:
        """Moves a file, in one step, in place of what was there."""
        os.replace(self._prefix + old, self._prefix + new, src_dir_fd=self._handle, dst_dir_fd=self._handle)

    def touch(self, file: int, name: str) -> None:
        """Marks an open file as used now, where that is allowed."""
        with suppress(OSError):  # on a file system that is read-only now the entry only looks older than it is
            os.utime(file if os.utime in os.supports_fd else self._prefix + name)

    def remove(self, name: str) -> None:
        """Removes a file."""
        os.unlink(self._prefix + name, dir_fd=self._handle)

    def remove_directory(self, name: str) -> None:
        """Removes an empty directory."""
        os.rmdir(self._prefix + name, dir_fd=self._handle)

    def discard(self, name: str) -> bool:
        """Removes a file; whether it was there and went."""
        try:
            self.remove(name)
        except OSError:
            return False
        return True

    def scan(self) -> Iterator[tuple[str, os.stat_result]]:
        """The names in it and their status; those that go meanwhile are left out."""
        with os.scandir(self._handle if self._handle is not None else self._prefix) as found:
            for entry in found:
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                yield entry.name, status

    def close(self) -> None:
        """Ends its use."""
        if self._handle is not None:
            close(self._handle)
            self._handle = None


class Directory:
    """A place for entries: our own, which may be written, or a read-only one that was prepared.

    A read-only directory may belong to any user, since the user who names it trusts its owner. Its files must belong to the same owner.
    """

    __slots__ = ("path", "writable")

    def __init__(self, path: Path, *, writable: bool) -> None:
        self.path = path
        self.writable = writable

    def open(self, *, create: bool = False) -> Folder | None:
        """The directory, opened and checked; made before, and private, where that is asked for. None where it is not there or may not be used: then
        there is one warning about it in this process."""
        opened = self._opened(create=create)
        if isinstance(opened, str):
            if opened:
                _warn(self, opened)
            return None
        return opened

    def trouble(self) -> str:
        """Why it may not be used, in words; empty where it may, or where it is not there yet."""
        opened = self._opened(create=False)
        if isinstance(opened, str):
            return opened
        opened.close()
        return ""

    def _opened(self, *, create: bool) -> Folder | str:
        """The folder, or the reason why it cannot be used: empty where it does not exist."""
        handle = None
        try:
            try:
                handle, status = self._handle()
            except FileNotFoundError:
                if not (create and self.writable):
                    return ""
                _make(self.path)
                handle, status = self._handle()
        except OSError as error:
            return _reason(self.path, error)
        if fault := self._fault(status):
            if handle is not None:
                close(handle)
            return fault
        return Folder(self.path, handle, status.st_uid, self.writable)

    def _handle(self) -> tuple[int | None, os.stat_result]:
        if not _BY_HANDLE:
            return None, os.lstat(self.path)
        handle = os.open(self.path, _OPEN_DIRECTORY)
        try:
            return handle, os.fstat(handle)
        except OSError:
            close(handle)
            raise

    def _fault(self, status: os.stat_result) -> str:
        if not stat.S_ISDIR(status.st_mode):
            return "it is not a directory"
        if sys.platform != "win32" and self.writable and status.st_uid != (user := os.geteuid()):
            return f"it belongs to user {status.st_uid}, and this process runs as user {user}"
        if CHECKED and status.st_mode & 0o022:
            return f"others may write in it (mode {stat.S_IMODE(status.st_mode):04o}); chmod go-w gives it back"
        return ""


def _reason(path: Path, error: OSError) -> str:
    """Why a directory could not be opened or made."""
    try:
        status = os.lstat(path)
    except OSError:
        return f"it cannot be made: {error.strerror}"
    if stat.S_ISLNK(status.st_mode):
        return "it is a link; name the directory itself"
    return f"it cannot be opened: {error.strerror}" if stat.S_ISDIR(status.st_mode) else "it is not a directory"


def _make(path: Path) -> None:
    """Makes a directory and those above it that are missing, all private."""
    missing = [path]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for folder in reversed(missing):
        with suppress(FileExistsError):  # another process was quicker
            folder.mkdir(mode=0o700)


_warned: set[str] = set()
_warning = threading.Lock()


def _warn(directory: Directory, reason: str) -> None:
    """Says once in this process that a directory is not used."""
    path = str(directory.path)
    with _warning:
        if path in _warned:
            return
        _warned.add(path)
    role = "disk cache" if directory.writable else "read-only tier of the disk cache"
    warnings.warn(
        f"the {role} at {path!r} is off: {reason}. Code is compiled in each process instead. "
        "VYRE_CACHE_DIR names another directory, VYRE_CACHE_LIMIT=0 turns the disk cache off without this warning.",
        CacheWarning,
        stacklevel=2,
    )

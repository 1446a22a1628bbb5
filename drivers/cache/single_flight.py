"""One compile per key, of all threads and processes that want it at once: the first makes the entry, the others wait and then read it.

Threads meet in a table. Processes meet at a lock on a file; the system releases the lock of a process that dies. A caller that has waited for its patience
compiles for itself. So does every caller where files cannot be locked (Windows, some network file systems). An entry that is compiled twice is the same code.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from vyre_py.drivers.cache.directory import Directory, Folder, close

__all__ = ["Claim", "FileLock", "SingleFlight", "take_lock"]

_PAUSE_S: Final = 0.0005  # between two looks at another process's lock, at first
_LONGEST_PAUSE_S: Final = 0.01

if sys.platform == "win32":
    _LOCKS: Final = False

    def _locked(file: int) -> bool:
        return bool(file)
else:
    import fcntl

    _LOCKS: Final = True

    def _locked(file: int) -> bool:
        """Takes an open file's lock; whether it was free. Raises OSError where such files have none."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return False
            raise
        return True


class FileLock:
    """A lock that this process holds. Its file exists as long as a process holds or wants the lock."""

    __slots__ = ("_file", "_folder", "_name")

    def __init__(self, folder: Folder, name: str, file: int) -> None:
        self._folder = folder
        self._name = name
        self._file = file

    def release(self) -> None:
        """Releases the lock. The file is removed first: a process that has it open and locks it later finds that the name means another file."""
        if self._file < 0:
            return
        self._folder.discard(self._name)
        file, self._file = self._file, -1
        close(file)
        self._folder.close()

    def forget(self) -> None:
        """In a forked child: closes the file. The parent holds the lock, and only the parent releases it."""
        if self._file >= 0:
            close(self._file)
            self._folder.close()
            self._file = -1


def take_lock(directory: Directory, name: str) -> FileLock | None:
    """The lock of that name if it is free, else None. Raises OSError where there are no locks, FileNotFoundError where there is no directory."""
    folder = directory.open(create=True)
    if folder is None:
        raise FileNotFoundError(errno.ENOENT, "no directory to lock in")
    file = -1
    try:
        file = folder.open(name, os.O_RDWR | os.O_CREAT)
        if _locked(file) and _is_at(folder, name, file):
            return FileLock(folder, name, file)
    except BaseException:
        _close(folder, file)
        raise
    _close(folder, file)
    return None


def _is_at(folder: Folder, name: str, file: int) -> bool:
    """Whether a locked file is still the one of that name; else its last holder has removed it, and another one counts."""
    try:
        return folder.status(name).st_ino == os.fstat(file).st_ino
    except FileNotFoundError:
        return False


def _close(folder: Folder, file: int) -> None:
    if file >= 0:
        close(file)
    folder.close()


class Claim:
    """One caller's claim to an entry. If another thread has made the entry meanwhile, `payload` holds it. Otherwise the caller looks again, makes the entry,
    and sets `made` for the threads that wait. `waited` says whether the caller had to wait."""

    __slots__ = ("made", "payload", "waited")

    def __init__(self) -> None:
        self.payload: bytes | None = None
        self.made: bytes | None = None
        self.waited = False


class _Flight:
    """An entry that a thread of this process is making."""

    __slots__ = ("done", "payload", "thread")

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.done = threading.Event()
        self.payload: bytes | None = None


class SingleFlight:
    """The entries being made now, by name. A caller waits at most `patience_s` seconds, for threads and processes together."""

    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s
        self.forget()

    def forget(self) -> None:
        """In a forked child: starts empty. The threads that were making entries do not exist here, and the locks belong to the parent."""
        for lock in getattr(self, "_locks", ()):
            lock.forget()
        self._guard = threading.Lock()
        self._making: dict[str, _Flight] = {}
        self._locks: set[FileLock] = set()

    @contextmanager
    def claim(self, name: str, directory: Directory | None) -> Iterator[Claim]:
        """The claim to make an entry, or an entry that another thread made. Processes lock in `directory`; None where they do not lock."""
        claim = Claim()
        until = time.monotonic() + self.patience_s
        flight = self._acquire(name, claim, until)
        lock = None
        try:
            if flight is not None and directory is not None:
                lock = self._lock(name, directory, claim, until)
            yield claim
        finally:
            if lock is not None:
                self._locks.discard(lock)
                lock.release()
            if flight is not None:
                self._publish(name, flight, claim.made)

    def _acquire(self, name: str, claim: Claim, until: float) -> _Flight | None:
        """A flight of this thread's, once no other thread makes the same entry. None where another has made it (`claim.payload`), where the wait was too long,
        and where this thread is making it already."""
        while True:
            with self._guard:
                flight = self._making.get(name)
                if flight is None:
                    flight = self._making[name] = _Flight()
                    return flight
            if flight.thread == threading.get_ident():
                return None  # what makes an entry asks for the same entry
            claim.waited = True
            if not flight.done.wait(max(until - time.monotonic(), 0)):
                self._leave(name, flight)  # later callers do not wait for it either
                return None
            if flight.payload is not None:
                claim.payload = flight.payload
                return None

    def _publish(self, name: str, flight: _Flight, payload: bytes | None) -> None:
        flight.payload = payload
        self._leave(name, flight)
        flight.done.set()

    def _leave(self, name: str, flight: _Flight) -> None:
        with self._guard:
            if self._making.get(name) is flight:
                del self._making[name]

    def _lock(self, name: str, directory: Directory, claim: Claim, until: float) -> FileLock | None:
        """The lock among processes. None where files have no locks, and where it is not acquired in time."""
        pause = _PAUSE_S
        while _LOCKS:
            try:
                lock = take_lock(directory, f"lock-{name}")
            except OSError:
                return None
            if lock is not None:
                self._locks.add(lock)
                return lock
            claim.waited = True
            left = until - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        return None

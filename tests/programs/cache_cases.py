"""Keys whose payloads everybody can tell, a cache that proves itself on one, and children that are not waited for forever."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from vyre_py.drivers.cache.disk import CacheKey, DiskCache

__all__ = ["Maker", "children_end", "entry_file", "in_child", "key", "payload", "prove", "within"]

PATIENCE_S = 60  # for what happens in a moment on a machine that is not busy


def key(number: int, kind: str = "cubin") -> CacheKey:
    return CacheKey(kind, (("code", hashlib.sha256(b"%d" % number).hexdigest()), ("target", "sm_90"), ("llvm", "22.1.0")))


def payload(of: CacheKey, size: int = 3000) -> bytes:
    """Bytes that belong to one key: a piece of another's would show."""
    return (bytes.fromhex(of.name) * (size // 32 + 1))[:size]


class Maker:
    """Stands in for a compiler, and counts what it compiled."""

    def __init__(self, of: CacheKey) -> None:
        self.key = of
        self.made = 0

    def __call__(self) -> bytes:
        self.made += 1
        return payload(self.key)


def prove(cache: DiskCache, of: CacheKey, *, made: int) -> None:
    """The right result, compiled so many times for it."""
    maker = Maker(of)
    assert cache.get_or_make(of, maker, bytes) == payload(of)
    assert maker.made == made


@contextmanager
def within(seconds: int = PATIENCE_S // 2) -> Iterator[None]:
    """Fails what takes longer, which is less than the patience of a cache."""

    def late(*_: Any) -> None:
        pytest.fail("it waits")  # no OSError, which the cache would take for trouble with the disk

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def entry_file(cache: DiskCache, of: CacheKey) -> Path:
    assert cache.path is not None
    return cache.path / of.name


def in_child(work: Callable[[], None], *, ordinary: Path | None = None) -> int:
    """Runs that in a forked child; its process id. Where `ordinary` is given the child is an ordinary user, whom that folder is given to first."""
    if ordinary is not None and os.geteuid() == 0:
        os.chown(ordinary, 65534, 65534)
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE_S)
        if ordinary is not None and os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        work()
        status = 0
    except BaseException as error:  # noqa: BLE001 - whatever it is, the child ends here and says why
        print(f"child: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def children_end(*children: int) -> None:
    """Waits for children, all of which have to have succeeded."""
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * len(children)

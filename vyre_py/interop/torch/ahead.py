"""Programs that are compiled by other threads, from the moment their text is written until their kernels are first called.

Meanwhile Inductor goes on with the rest of the graph, and one kernel's machine code is linked while the next is optimised. Nothing is loaded before the first
call: the driver is not to be called while a stream is captured. With one core nothing is done ahead.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import vyre_py as vp
from vyre_py.drivers.cache.lookup import compiled, validated
from vyre_py.drivers.cores import core_count

__all__ = ["begin_compiling", "program_of"]

_THREADS: Final = 4  # LLVM compiles one Program at a time; NVIDIA's linker takes several
_MOST: Final = 512  # texts that nobody has called yet
_lock = threading.Lock()
_begun: Final[dict[tuple[str, str], Future[vp.Program]]] = {}  # by text and target
_pool: ThreadPoolExecutor | None = None


def _compiled(text: str, target: Any) -> vp.Program:
    program = vp.Program.from_text(text)
    compiled(validated(program), [target.for_program(program)], vp.CompileOptions())
    return program


def begin_compiling(text: str, device: Any) -> None:
    """Has the Program of a text compiled for a device, so that a cache in memory has it soon."""
    global _pool  # noqa: PLW0603 - the threads of the process
    if core_count() == 1:
        return
    key = text.strip(), device.name
    with _lock:
        if key in _begun:
            return
        if _pool is None:
            _pool = ThreadPoolExecutor(min(_THREADS, core_count()), "vyre-torch")
        while len(_begun) >= _MOST:
            _begun.pop(next(iter(_begun))).cancel()
        _begun[key] = _pool.submit(_compiled, text, device.target)


def program_of(text: str, device: Any) -> vp.Program:
    """The Program of a text, once what is done ahead for it is done. Raises what compiling it raises."""
    with _lock:
        begun = _begun.pop((text.strip(), device.name), None)
    return vp.Program.from_text(text) if begun is None or begun.cancel() else begun.result()


def _forked() -> None:
    """In a forked child the threads are not there."""
    global _lock, _pool
    _lock, _pool = threading.Lock(), None
    _begun.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

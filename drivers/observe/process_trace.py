"""The trace of a whole process, which the environment asks for: a file by VYRE_TRACE, NVTX ranges by VYRE_NVTX.

Each process has a file of its own. The process that was started with VYRE_TRACE writes the file of that name; processes that it starts write files
whose names contain their process id.
"""

from __future__ import annotations

import atexit
import os
import threading
from pathlib import Path
from typing import Final

from vyre_py.drivers.observe.trace import EVENT_LIMIT, Trace

__all__ = ["begin_process_trace", "end_process_trace"]

_FILE: Final = "VYRE_TRACE"
_NVTX: Final = "VYRE_NVTX"
# What stands in a name for the number of the process.
_NUMBER: Final = "{pid}"

_lock = threading.RLock()
_begun: list[Trace] = []


def begin_process_trace() -> None:
    """Starts the trace that the environment asks for, once, until the process ends. Called before anything is compiled or a device opened.

    Raises DriverError for a file that can't be written, DeviceUnavailable for ranges without the package nvtx.
    """
    given, nvtx = os.environ.get(_FILE, "").strip(), os.environ.get(_NVTX, "0").strip() not in ("", "0")
    if _begun or not (given or nvtx):
        return
    with _lock:
        if _begun:
            return
        name = Path(given).absolute() if given else None
        begun = Trace(None if name is None else str(name).replace(_NUMBER, str(os.getpid())), nvtx, EVENT_LIMIT if name else 0, None)
        _begun.append(begun.__enter__())
        if name is not None:
            os.environ[_FILE] = str(name if _NUMBER in str(name) else name.with_name(f"{name.stem}.{_NUMBER}{name.suffix}"))


def end_process_trace() -> None:
    """Writes the file, at the orderly end of the process. Raises DriverError when that fails."""
    for begun in _begun:
        begun.__exit__(None, None, None)


def _forked() -> None:
    """In a forked child, which inherits open devices: begins one of its own where its parent had one."""
    global _lock  # noqa: PLW0603 - a child has one thread, and the old lock may never be given back
    _lock = threading.RLock()
    if _begun:
        _begun.clear()
        begin_process_trace()


atexit.register(end_process_trace)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
